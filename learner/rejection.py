"""Which tokens an off-policy correction drops. Axes: T, tokens. True: dropped.

r = prox / mu, the policy at the start of the update over the one that sampled. Inputs are 0 in masked places, where
the answer has no meaning: the caller masks it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from learner.segments import segment_sum


def outside(log_ratio_T: Tensor, low: float, high: float) -> Tensor:
    """Ratios below `low` or above `high`; the bounds themselves are inside."""
    return (log_ratio_T < math.log(low)) | (log_ratio_T > math.log(high))


def largest_moments(log_ratio_T: Tensor, advantages_T: Tensor, mask_T: Tensor, tau: float) -> Tensor:
    """The tokens of largest (log r)^2, until the mean of the rest is at most `tau`; equal ones go together.

    Only among tokens that a clip could cut: A > 0 with r > 1, A < 0 with r < 1. The others stay, and are in no mean.
    M2PO, arXiv:2510.01161, algorithm 1 and section 5.2.
    """
    bounded = mask_T & (advantages_T * log_ratio_T > 0)
    squares_T = log_ratio_T.square()
    ascending, _ = squares_T[bounded].sort()
    means = ascending.cumsum(0) / torch.arange(1, len(ascending) + 1, device=ascending.device)
    kept = int((means <= tau).sum())
    if kept == len(ascending):
        return torch.zeros_like(mask_T)
    return bounded & (squares_T >= ascending[kept])


def moved_too_far(prox_T: Tensor, behavior_T: Tensor, advantages_T: Tensor, limit: float) -> Tensor:
    """Tokens whose probability already moved by more than `limit` the way their advantage pushes it.

    prox - mu > limit with A > 0, or < -limit with A < 0. DPPO, arXiv:2602.04879, as in prime-rl.
    """
    moved_T = prox_T.exp() - behavior_T.exp()
    return ((advantages_T > 0) & (moved_T > limit)) | ((advantages_T < 0) & (moved_T < -limit))


def holds_unlikely(log_ratio_T: Tensor, segments_T: Tensor, limit: float) -> Tensor:
    """All tokens of a sequence in which any ratio is below `limit`: one that the trainer finds all but impossible."""
    unlikely_T = (log_ratio_T < math.log(limit)).to(torch.int64)
    return segment_sum(unlikely_T, segments_T) > 0
