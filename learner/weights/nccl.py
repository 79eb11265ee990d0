"""The learner's end of the `nccl` transport: a published version goes to a generator's GPUs over vLLM's own engine.

Each generator has an NCCL group of its own with the learner's rank 0. So one that dies, stalls or comes late keeps
nobody else waiting, and the learner trains on while it sends: what is sent is the published file, not the parameters.
The price is one broadcast a generator, and a way over the host's memory.

Consumes: generators that are ready for a version. Waits for: them. Produces: collectives. Unblocked by: their answers,
or the deadline.
"""

from __future__ import annotations

import logging
import math
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import anyio
import torch
from anyio import to_thread
from anyio.abc import TaskGroup
from anyio.from_thread import BlockingPortal
from safetensors import safe_open

from learner.weights.files import version_file
from stream_rl.causes import in_words
from stream_rl.errors import ConfigError, LinkError, WeightsRejected
from stream_rl.link import zmq_wire
from stream_rl.link.calls import MAX_CALL_BYTES, Call, Done, Join, Method, Sent, to_sender
from stream_rl.link.codec import encode
from stream_rl.link.limits import Limits
from stream_rl.link.running import running

LOOPBACK = "tcp://127.0.0.1:0"
log = logging.getLogger(__name__)


class Transfer(Protocol):
    """What vLLM's trainer-side engine is to us."""

    def send_weights(self) -> None:
        """Drive one update of the generator, blocking."""
        ...

    def shutdown(self) -> None:
        """Leave the group."""
        ...


class VersionSource:
    """A version's file as vLLM's `WeightSource`: every tensor whole, on the device it is sent from."""

    def __init__(self, device: torch.device) -> None:
        self.path = Path()  # the file the next pass reads
        self._device = device

    def metadata(self) -> list[Any]:
        """Name, dtype and shape of every tensor, in the order of the file."""
        from vllm.distributed.weight_transfer.base import ParamMeta

        with safe_open(self.path, framework="pt") as file:
            names = file.keys()
            tensors = ((name, file.get_tensor(name)) for name in names)
            return [ParamMeta(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors]

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        with safe_open(self.path, framework="pt", device=str(self._device)) as file:
            for name in file.keys():  # noqa: SIM118  # a file, not a dict
                yield name, file.get_tensor(name)


class RemoteEngine:
    """A generator's engine, as vLLM's trainer side calls it: from any thread, blocking. One call at a time."""

    def __init__(self, wire: zmq_wire.ZmqWire, route: bytes, portal: BlockingPortal) -> None:
        self.answer, self._answers = anyio.create_memory_object_stream[Done](1)
        self._wire = wire
        self._route = route
        self._portal = portal

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Join the NCCL group; returns once the sender has joined, too."""
        self._portal.call(self._call, "init_weight_transfer_engine", init_info)

    def start_weight_update(self) -> None:
        """Expect tensors."""
        self._portal.call(self._call, "start_weight_update", {})

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Receive them; returns when the collective is over."""
        self._portal.call(self._call, "update_weights", update_info)

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """Take them into use. The receiver labels them itself: it knows which version it asked for."""
        self._portal.call(self._call, "finish_weight_update", {})

    def close(self) -> None:
        """No more answers are expected."""
        self.answer.close()
        self._answers.close()

    async def _call(self, method: Method, info: dict[str, Any]) -> None:
        self._wire.put(self._route, encode(Call(method=method, info=info)))
        done = await self._answers.receive()
        if done.error:
            raise WeightsRejected(f"the generator's {method} failed: {done.error}")


class _Session:
    """One generator process: its NCCL group lives as long as it does."""

    def __init__(self, engine: RemoteEngine, source: VersionSource) -> None:
        self.engine = engine
        self.source = source
        self.transfer: Transfer | None = None
        self.busy = False


class NcclSender:
    """Sends versions to generators that ask for them. Open one with `open_nccl_sender`."""

    def __init__(
        self, wire: zmq_wire.ZmqWire, directory: Path, run_id: str, device: torch.device, deadline_s: float
    ) -> None:
        self.address = wire.address
        self._wire = wire
        self._directory = directory
        self._run_id = run_id
        self._device = device
        self._deadline_s = deadline_s
        self._sessions: dict[bytes, _Session] = {}
        self._tasks: TaskGroup
        self._portal: BlockingPortal

    async def own_wire(self) -> None:
        """Serve until cancelled."""
        async with BlockingPortal() as self._portal, anyio.create_task_group() as self._tasks:
            try:
                await self._wire.run(self._arrive, lambda now: math.inf)
            finally:
                for route in list(self._sessions):
                    self._drop(route)

    async def aclose(self) -> None:
        """Generators find out when they ask for the next version."""

    async def part(self, reason: str) -> None:
        """As `aclose`."""

    def _arrive(self, route: bytes, parts: list[bytes]) -> None:
        try:
            message = to_sender.decode(parts)
        except LinkError as error:
            log.warning("a message about weights was ignored: %s", error)
            return
        session = self._sessions.get(route)
        if isinstance(message, Join):
            if session is None:
                remote = RemoteEngine(self._wire, route, self._portal)
                session = self._sessions[route] = _Session(remote, VersionSource(self._device))
            if session.busy:
                self._wire.put(route, encode(Sent(error="a transfer to this generator is under way")))
                return
            session.busy = True
            self._tasks.start_soon(self._serve, route, session, message)
        elif session is not None and session.busy:
            try:
                session.engine.answer.send_nowait(message)
            except anyio.WouldBlock:
                log.warning("a generator answered a call twice; the second answer was ignored")

    async def _serve(self, route: bytes, session: _Session, join: Join) -> None:
        error = ""
        try:
            with anyio.fail_after(self._deadline_s):
                # Abandoned at the deadline: a thread inside a collective whose peer died cannot be woken.
                await to_thread.run_sync(partial(self._send, session, join), abandon_on_cancel=True)
        except TimeoutError:
            error = f"version {join.version} was not sent within {self._deadline_s:g} s"
            log.error("%s; the generator's NCCL group is given up", error)
            session.transfer = None  # a thread may still be inside it
        except Exception as problem:  # whatever vLLM or NCCL says ends this generator's transfer and nothing else
            log.exception("version %d did not reach a generator", join.version)
            error = in_words(problem)
        session.busy = False
        if error:
            self._drop(route)
        self._wire.put(route, encode(Sent(error=error)))

    def _send(self, session: _Session, join: Join) -> None:
        if join.run_id != self._run_id:
            raise WeightsRejected(f"this learner serves run {self._run_id!r}, not {join.run_id!r}")
        session.source.path = version_file(self._directory, self._run_id, join.version)
        if not session.source.path.exists():
            raise WeightsRejected(f"version {join.version} is not kept any more")
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)  # of this thread
        if session.transfer is None:
            host = (urlsplit(self.address).hostname or "").removeprefix("::ffff:")  # ZeroMQ's way to write IPv4
            session.transfer = open_transfer(session.engine, session.source, host=host, num_workers=join.num_workers)
        session.transfer.send_weights()

    def _drop(self, route: bytes) -> None:
        """Forget a generator and leave its NCCL group."""
        session = self._sessions.pop(route)
        session.engine.close()
        if session.transfer is not None and not session.busy:
            session.transfer.shutdown()


def open_transfer(engine: RemoteEngine, source: VersionSource, *, host: str, num_workers: int) -> Transfer:
    """Meet a generator's workers in a new NCCL group: the learner is rank 0, they are 1 .. num_workers."""
    from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory
    from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

    with socket.socket() as probe:  # vLLM binds it itself, a moment later; a port taken in between fails this transfer
        probe.bind((host, 0))
        port = int(probe.getsockname()[1])
    info = NCCLTrainerInitInfo(master_address=host, master_port=port, world_size=1 + num_workers, rank=0)
    transfer: Transfer = WeightTransferTrainerFactory.trainer_init(info, client=engine, source=source)
    return transfer


@asynccontextmanager
async def open_nccl_sender(
    directory: Path, run_id: str, device: torch.device, *, deadline_s: float, address: str = LOOPBACK
) -> AsyncIterator[NcclSender]:
    """Send what a `FilesPublisher` of the run wrote into `directory`, for the length of the block.

    Raises `ConfigError` without vLLM, and if the address cannot be bound or could be reached from another machine.
    """
    try:
        import vllm.distributed.weight_transfer.nccl_engine  # noqa: F401  # seconds, and not in the first transfer
    except ImportError as error:
        raise ConfigError("weights.transport", f"'nccl' needs vLLM beside the learner, too: {error}") from error
    wire = zmq_wire.bind(address, Limits(max_message_bytes=MAX_CALL_BYTES))
    try:
        async with running(NcclSender(wire, directory, run_id, device, deadline_s)) as sender:
            yield sender
    finally:
        wire.close()
