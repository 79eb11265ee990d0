"""How a new version of the policy leaves the learner."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec
import torch
from torch import Tensor

from stream_rl.types import WeightsManifest


class TensorSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a parameter will be, before it is gathered."""

    name: str  # as Hugging Face names it
    dtype: torch.dtype  # element type
    shape: tuple[int, ...]  # full shape, not that of a shard


class Publisher(Protocol):
    """Makes versions of the policy readable by generators. Used on rank 0 only."""

    def publish(self, version: int, specs: Sequence[TensorSpec], tensors: Iterable[Tensor]) -> WeightsManifest:
        """Publish `tensors`, which come in the order of `specs`, each valid until the next is asked for."""
        ...
