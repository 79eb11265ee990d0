"""Mean and spread of D over all the loss tokens of a trajectory, which rows, micro-batches and ranks may share.

Axes: T, selected tokens of a micro-batch; J, trajectories of an update.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

from learner.losses import keep

GapNorm = Literal["none", "centre", "zscore"]
SMALLEST_SPREAD = 1e-5  # nats: float32 does not know a log-probability better, so less is no spread


class GapStatistics:
    """Sums of one update, added up token by token, then over ranks, and then read."""

    def __init__(self, num_trajectories: int, device: torch.device) -> None:
        self._sums_3J = torch.zeros(3, num_trajectories, dtype=torch.float64, device=device)  # n, sum D, sum D^2

    def add(self, gap_T: Tensor, trajectories_T: Tensor, mask_T: Tensor) -> None:
        """Add the tokens of the mask to the trajectories they are of."""
        d = keep(gap_T.detach().double(), mask_T)
        for sums, values in zip(self._sums_3J, (mask_T.double(), d, d.square()), strict=True):
            sums.index_add_(0, trajectories_T, values)

    def reduce(self, reduce: Callable[[Sequence[float]], Sequence[float]]) -> None:
        """Replace the sums by those over all ranks; `reduce` is a collective."""
        total = reduce(self._sums_3J.flatten().tolist())
        self._sums_3J = torch.tensor(total, dtype=torch.float64, device=self._sums_3J.device).reshape(3, -1)

    def normed(self, gap_T: Tensor, trajectories_T: Tensor, mask_T: Tensor, norm: GapNorm) -> Tensor:
        """D, D - mean, or (D - mean) / spread of its trajectory, [T]; 0 outside the mask.

        The spread is the population's standard deviation. Where it is none, as for a trajectory of one token or a
        constant D, "zscore" gives 0.
        """
        d = keep(gap_T.detach().double(), mask_T)
        if norm == "none":
            return d.to(gap_T.dtype)
        count, total, squares = self._sums_3J
        mean_J = total / count.clamp(min=1)
        d = d - mean_J[trajectories_T]
        if norm == "zscore":
            spread_J = (squares / count.clamp(min=1) - mean_J.square()).clamp(min=0).sqrt()
            # The difference of squares is exact to about 1e-8 of the mean only.
            smallest_J = SMALLEST_SPREAD * mean_J.abs().clamp(min=1)
            d = torch.where((spread_J > smallest_J)[trajectories_T], d / spread_J.clamp(min=1e-30)[trajectories_T], 0.0)
        return keep(d, mask_T).to(gap_T.dtype)
