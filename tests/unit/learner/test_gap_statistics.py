from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from learner.gap_statistics import GapNorm, GapStatistics

CPU = torch.device("cpu")


def of(gap: Tensor, trajectories: Tensor, mask: Tensor, norm: GapNorm) -> Tensor:
    statistics = GapStatistics(int(trajectories.max()) + 1, CPU)
    statistics.add(gap, trajectories, mask)
    statistics.reduce(list)
    return statistics.normed(gap, trajectories, mask, norm)


def test_norms_by_hand() -> None:
    # trajectory 0: D = 1, 3, masked, mean 2, spread 1; trajectory 1: D = -2, 0, 8, mean 2, spread sqrt(56 / 3)
    gap = torch.tensor([1.0, 3.0, 99.0, -2.0, 0.0, 8.0])
    trajectories = torch.tensor([0, 0, 0, 1, 1, 1])
    mask = torch.tensor([True, True, False, True, True, True])
    assert of(gap, trajectories, mask, "none").tolist() == [1, 3, 0, -2, 0, 8]
    assert of(gap, trajectories, mask, "centre").tolist() == [-1, 1, 0, -4, -2, 6]
    s = math.sqrt(56 / 3)
    assert of(gap, trajectories, mask, "zscore").tolist() == pytest.approx([-1, 1, 0, -4 / s, -2 / s, 6 / s])


def test_a_trajectory_spans_micro_batches_and_ranks() -> None:
    # this rank holds D = 1 and, in another micro-batch, D = 3 of trajectory 1; the other rank holds D = 5 of it
    statistics = GapStatistics(2, CPU)
    for value in (1.0, 3.0):
        statistics.add(torch.tensor([value]), torch.tensor([1]), torch.tensor([True]))

    def with_the_other_rank(values: object) -> list[float]:
        assert values == [0, 2, 0, 4, 0, 10]  # n, sum, sum of squares of both trajectories
        return [0, 3, 0, 9, 0, 35]

    statistics.reduce(with_the_other_rank)
    # mean 3, spread sqrt(8 / 3)
    normed = statistics.normed(torch.tensor([5.0]), torch.tensor([1]), torch.tensor([True]), "zscore")
    assert float(normed) == pytest.approx(2 / math.sqrt(8 / 3))


@pytest.mark.parametrize("value", [0.0, 0.1, -7.3, 1e3])
def test_a_constant_gap_has_no_spread(value: float) -> None:
    gap = torch.full((7,), value)
    one, everywhere = torch.zeros(7, dtype=torch.int64), torch.ones(7, dtype=torch.bool)
    assert of(gap, one, everywhere, "zscore").tolist() == [0.0] * 7
    assert of(gap[:1], one[:1], everywhere[:1], "zscore").tolist() == [0.0]
    # nor has the rounding of two passes that should agree
    noise = gap + 1e-7 * torch.randn(7, generator=torch.Generator().manual_seed(0))
    assert of(noise, one, everywhere, "zscore").tolist() == [0.0] * 7


@given(st.integers(0, 10**6), st.integers(1, 30), st.floats(-3, 3), st.floats(0.1, 10))
@settings(deadline=None, max_examples=40)
def test_zscore_has_mean_0_and_spread_1_whatever_shift_and_scale(
    seed: int, tokens: int, shift: float, scale: float
) -> None:
    rng = np.random.default_rng(seed)
    gap = torch.from_numpy(rng.normal(size=tokens))
    trajectories = torch.from_numpy(rng.integers(0, 3, size=tokens))
    mask = torch.from_numpy(rng.random(tokens) < 0.7)
    broken = torch.where(mask, gap, torch.nan)
    found = of(broken, trajectories, mask, "zscore")
    assert torch.allclose(found, of(gap * scale + shift, trajectories, mask, "zscore"), atol=1e-6)
    assert found[~mask].tolist() == [0.0] * int((~mask).sum())
    for number in range(3):
        own = found[mask & (trajectories == number)]
        if len(own) > 1:
            assert float(own.mean()) == pytest.approx(0, abs=1e-9)
            assert float(own.square().mean()) == pytest.approx(1)
