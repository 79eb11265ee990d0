"""What a published tensor looks like: as the parameters are, or rounded to bfloat16.

Rounding halves what is written, sent and read. It is not free: generators then sample from rounded parameters while
the learner scores with its own, so `kl_behavior` has a floor (see docs/weights.md), and updates smaller than half a
unit in the last of bfloat16's 8 significant bits do not reach the generators before they add up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
import torch
from torch import Tensor

from learner.weights.port import TensorSpec


def wire_specs(specs: Sequence[TensorSpec], dtype: torch.dtype | None) -> tuple[TensorSpec, ...]:
    """`specs` with every floating type replaced by `dtype`; None leaves them as they are."""
    return tuple(
        msgspec.structs.replace(spec, dtype=dtype) if dtype and spec.dtype.is_floating_point else spec for spec in specs
    )


def on_wire(tensors: Iterable[Tensor], dtype: torch.dtype | None) -> Iterator[Tensor]:
    """The tensors `wire_specs` describes, one at a time; rounding is to nearest, ties to even."""
    for tensor in tensors:
        yield tensor.to(dtype) if dtype and tensor.is_floating_point() else tensor
