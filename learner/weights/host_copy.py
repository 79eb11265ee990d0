"""One version of the parameters in host memory, so that it can be written while training goes on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from learner.weights.wire import on_wire


class HostCopy:
    """Holds what will be published, as it goes on the wire. Memory is taken once, at the first version.

    Not thread-safe: a version is read to its end before the next is taken.
    """

    def __init__(self, dtype: torch.dtype | None) -> None:
        """`dtype`: what floating tensors are rounded to; None: they stay as they are."""
        self._dtype = dtype
        self._tensors: list[Tensor] = []

    @property
    def tensors(self) -> Sequence[Tensor]:
        """The version taken last, in the order it came in."""
        return self._tensors

    def take(self, tensors: Iterable[Tensor]) -> None:
        """Copy a version, tensor by tensor. Every version has the same tensors, in the same order."""
        first = not self._tensors
        for i, tensor in enumerate(on_wire(tensors, self._dtype)):
            if first:
                self._tensors.append(torch.empty_like(tensor, device="cpu"))
            self._tensors[i].copy_(tensor)
