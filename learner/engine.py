"""DeepSpeed as the thing that holds parameters and optimiser (`learner.ports.Engine`)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from learner.batch import ForwardPass
from learner.checkpoint_state import CheckpointUnusable
from learner.distributed import World
from learner.logprobs import EntropyMode, TokenScores
from learner.lora import name_in_files
from learner.policy import PolicyModel, run_forward
from learner.weights.buckets import buckets
from learner.weights.port import TensorSpec
from stream_rl.config import Learner

_BUCKET_BYTES = 256 << 20  # most parameter bytes gathered at once
_TAG = "state"  # name of the one checkpoint in a DeepSpeed folder


class DeepSpeedEngine:
    """A policy under ZeRO 0 to 3 with AdamW at a constant rate. Every method is called by all ranks alike.

    Micro-batches are accumulated until `step`: DeepSpeed's own counting is off, since their number varies.
    """

    def __init__(
        self, policy: PolicyModel, settings: Learner, world: World, *, dtype: str, bucket_bytes: int = _BUCKET_BYTES
    ) -> None:
        import deepspeed

        self._deepspeed: Any = deepspeed
        self._world = world
        self._stage = settings.zero_stage
        self._bucket_bytes = bucket_bytes
        self._policy = policy
        trained = [parameter for _, parameter in policy.trained()]
        optimizer = torch.optim.AdamW(trained, lr=settings.lr, betas=settings.betas, weight_decay=settings.weight_decay)
        # Plain data parallelism in float32 is the one mode in which DeepSpeed clips without keeping the norm.
        self._clips_itself = settings.zero_stage == 0 and dtype == "float32"
        self._norm: Tensor | None = None
        if self._clips_itself:

            def clip(*_: object) -> None:
                self._norm = torch.nn.utils.clip_grad_norm_(trained, settings.grad_clip)

            optimizer.register_step_pre_hook(clip)  # runs inside `step`, after gradients were averaged over ranks
        self._engine: Any = deepspeed.initialize(
            model=policy,
            optimizer=optimizer,
            config={
                "train_micro_batch_size_per_gpu": 1,
                "gradient_accumulation_steps": 1,
                "managed_gradient_accumulation": False,
                "gradient_clipping": 0.0 if self._clips_itself else settings.grad_clip,
                "zero_optimization": {"stage": settings.zero_stage, "overlap_comm": False},
                "bf16": {"enabled": dtype == "bfloat16"},
                "steps_per_print": 2**31,
                "wall_clock_breakdown": False,
            },
        )[0]

    @property
    def rank(self) -> int:
        """See `Engine`."""
        return self._world.rank

    @property
    def num_ranks(self) -> int:
        """See `Engine`."""
        return self._world.size

    @property
    def device(self) -> torch.device:
        """See `Engine`."""
        return self._world.device

    def sum_over_ranks(self, values: Sequence[float]) -> list[float]:
        """See `Engine`."""
        return self._world.sum(values)

    def score(self, forward: ForwardPass, *, entropy: EntropyMode, support: int | Tensor = 0) -> TokenScores:
        """See `Engine`."""
        return run_forward(self._engine, forward, self.device, entropy=entropy, support=support)

    def backward(self, loss: Tensor) -> None:
        """See `Engine`."""
        # DeepSpeed averages gradients over ranks; the update sums the shares of all ranks.
        self._engine.backward(loss * self.num_ranks, scale_wrt_gas=False)

    def step(self) -> float:
        """See `Engine`."""
        self._engine.step()
        norm = self._norm if self._clips_itself else self._engine.get_global_grad_norm()
        return math.nan if norm is None else float(norm)

    @property
    def specs(self) -> tuple[TensorSpec, ...]:
        """Name in files, dtype and full shape of every trained parameter; tied ones once."""
        return tuple(
            TensorSpec(name=name_in_files(name), dtype=p.dtype, shape=tuple(getattr(p, "ds_shape", p.shape)))
            for name, p in self._parameters()
        )

    @property
    def adapts(self) -> bool:
        """Whether adapters alone are trained."""
        return self._policy.adapter is not None

    def full_parameters(self) -> Iterator[Tensor]:
        """Whole trained parameters on the CPU, in the order of `specs`, valid until the next one is asked for.

        A collective under ZeRO 3: all ranks iterate to the end. At most one bucket is gathered at a time, so beyond
        its shards a rank holds `bucket_bytes`, or its largest parameter if that is more.
        """
        for bucket in self._buckets():
            if self._stage < 3:
                yield from (p.detach().cpu() for p in bucket)
            else:
                with self._deepspeed.zero.GatheredParameters(bucket):
                    yield from (p.detach().cpu() for p in bucket)

    def save(self, folder: Path) -> None:
        """Write trained parameters and optimiser state of all ranks into `folder`."""
        self._engine.save_checkpoint(str(folder), tag=_TAG, save_latest=False, exclude_frozen_parameters=self.adapts)

    def load(self, folder: Path) -> None:
        """Read what `save` wrote, with the same number of ranks. Raises `CheckpointUnusable`."""
        try:
            loaded, _ = self._engine.load_checkpoint(str(folder), tag=_TAG, load_module_strict=not self.adapts)
        except (OSError, RuntimeError, KeyError, ValueError, AssertionError) as error:
            raise CheckpointUnusable(f"{folder}: DeepSpeed cannot load it: {error}") from error
        if loaded is None:
            raise CheckpointUnusable(f"{folder}: holds no DeepSpeed checkpoint named {_TAG!r}")

    def export_config(self, folder: Path) -> None:
        """Write `config.json` of the model, or `adapter_config.json`, into `folder`."""
        self._policy.save_config(folder)

    def close(self) -> None:
        """Drop DeepSpeed's hooks and buffers."""
        self._engine.destroy()

    def _parameters(self) -> Iterator[tuple[str, Any]]:
        yield from self._policy.trained()

    def _buckets(self) -> Iterator[Sequence[Any]]:
        parameters = [parameter for _, parameter in self._parameters()]
        sizes = [math.prod(getattr(p, "ds_shape", p.shape)) * p.element_size() for p in parameters]
        for run in buckets(sizes, self._bucket_bytes):
            yield [parameters[i] for i in run]
