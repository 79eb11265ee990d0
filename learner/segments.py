"""Sums over sequences. Axes: T, tokens; S, sequences. Token t belongs to sequence `segments_T[t]`, 0..S-1."""

from __future__ import annotations

import torch
from torch import Tensor


def segment_sum(values_T: Tensor, segments_T: Tensor) -> Tensor:
    """For each token the sum over its whole sequence, [T]."""
    num_segments = int(segments_T.max()) + 1 if segments_T.numel() else 0
    totals_S = torch.zeros(num_segments, dtype=values_T.dtype, device=values_T.device)
    return totals_S.index_add(0, segments_T, values_T)[segments_T]


def segment_mean(values_T: Tensor, mask_T: Tensor, segments_T: Tensor) -> Tensor:
    """For each token the mean of its sequence over the mask, [T]; `values` must be 0 outside of it.

    A sequence with nothing in the mask has mean 0.
    """
    counts_T = segment_sum(mask_T.to(values_T.dtype), segments_T)
    return segment_sum(values_T, segments_T) / counts_T.clamp(min=1)
