"""The processes of the learner: how they find each other and what rank 0 tells the others.

Addresses come from the variables every launcher sets: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from importlib import import_module

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor

from stream_rl.errors import ConfigError
from stream_rl.link.codec import Decoder, pack, unpack
from stream_rl.messages import SelectedGroup

# A rank waits for its next command as long as rollouts take; a dead rank 0 closes its sockets and so ends the wait.
_COMMAND_TIMEOUT = timedelta(days=7)


class TrainRound(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Train on these groups, then publish."""

    update: int  # k
    groups: tuple[SelectedGroup, ...]  # all of the round; each rank takes its share


class WriteCheckpoint(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Write a checkpoint of the current parameters."""


class Stop(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Leave in order."""


Command = TrainRound | WriteCheckpoint | Stop
_decoder: Decoder[Command] = Decoder(Command)


class World:
    """This process among its peers. All methods but the properties are collectives: every rank must call them."""

    def __init__(self, rank: int, size: int, device: torch.device, control: dist.ProcessGroup | None) -> None:
        self.rank = rank
        self.size = size
        self.device = device
        self._control = control  # gloo, also beside NCCL: commands and sums live on the CPU

    @classmethod
    def join(cls) -> World:
        """Meet the other ranks: NCCL where there is CUDA, gloo elsewhere. Needs the launcher's variables."""
        import deepspeed

        rank, size, local_rank = (_variable(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
        cuda = torch.cuda.is_available()
        if cuda:
            torch.cuda.set_device(local_rank)
        else:
            _without_shm_kernel()
        deepspeed.init_distributed(dist_backend="nccl" if cuda else "gloo", verbose=False)
        control = dist.new_group(backend="gloo", timeout=_COMMAND_TIMEOUT)
        return cls(rank, size, torch.device("cuda", local_rank) if cuda else torch.device("cpu"), control)

    def tell(self, command: Command) -> None:
        """On rank 0: give every other rank its next command."""
        if self.size > 1:
            blob = pack(command)
            dist.broadcast(torch.tensor([len(blob)]), src=0, group=self._control)
            dist.broadcast(torch.frombuffer(bytearray(blob), dtype=torch.uint8), src=0, group=self._control)

    def next_command(self) -> Command:
        """On the other ranks: wait for the next command. Bytes of our own codec; nothing is unpickled."""
        length = torch.zeros(1, dtype=torch.int64)
        dist.broadcast(length, src=0, group=self._control)
        blob = torch.empty(int(length), dtype=torch.uint8)
        dist.broadcast(blob, src=0, group=self._control)
        return _decoder.decode(unpack(blob.numpy().data))

    def sum(self, values: Sequence[float]) -> list[float]:
        """Element-wise sum over ranks, in float64."""
        total: Tensor = torch.tensor(values, dtype=torch.float64)
        if self.size > 1:
            dist.all_reduce(total, group=self._control)
        return total.tolist()

    def barrier(self) -> None:
        """Wait until every rank is here."""
        self.sum([0.0])

    def leave(self) -> None:
        """Take the process groups down."""
        dist.destroy_process_group()


def _variable(name: str) -> int:
    value = os.environ.get(name, "")
    if not value.isdigit():
        raise ConfigError(
            name, f"a learner rank needs this variable as a number, got {value!r}; start ranks with a launcher."
        )
    return int(value)


def _without_shm_kernel() -> None:
    """Keep DeepSpeed from compiling its shared-memory collectives: a minute of g++, and an error where there is none.

    The switch is not documented, so it is thrown only where the function that reads it exists; elsewhere DeepSpeed
    does what it does by default.
    """
    import deepspeed.ops

    # By name: as an attribute, `deepspeed.comm.torch` is torch itself.
    if hasattr(import_module("deepspeed.comm.torch"), "build_shm_op"):
        # Setting the name also spares the probe of every kernel, which starts compilers. Nothing else reads it here.
        deepspeed.ops.__compatible_ops__ = {"deepspeed_shm_comm": False}
