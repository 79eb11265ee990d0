from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learner.advantages import ESTIMATORS, dr_grpo, grpo, rloo

VALID4 = [True] * 4


def test_grpo_uses_the_unbiased_deviation() -> None:
    # mean 1/4; deviations 3/4, -1/4 x 3; variance (9/16 + 3/16) / 3 = 1/4; std 1/2
    assert grpo([1, 0, 0, 0], VALID4) == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-5)


def test_dr_grpo_only_centres() -> None:
    assert dr_grpo([1, 0, 0, 0], VALID4) == pytest.approx([0.75, -0.25, -0.25, -0.25])


def test_rloo_compares_with_the_others() -> None:
    # rewards 3, 1, 2: others' means 1.5, 2.5, 2
    assert rloo([3, 1, 2], [True] * 3) == pytest.approx([1.5, -1.5, 0.0])


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_invalid_members_are_in_no_statistic(name: str) -> None:
    estimate = ESTIMATORS[name]
    with_invalid = estimate([1, float("nan"), 0, 0, 7], [True, False, True, True, False])
    without = estimate([1, 0, 0], [True] * 3)
    assert with_invalid[[0, 2, 3]].tolist() == without.tolist()
    assert with_invalid[[1, 4]].tolist() == [0, 0]


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
@pytest.mark.parametrize(
    ("rewards", "valid"),
    [
        ([1, 1, 1], [True] * 3),
        ([0.1, 0.1, 0.1], [True] * 3),  # their mean is not exactly 0.1 in binary
        ([1, 0], [True, False]),
        ([1, 0], [False, False]),
        ([], []),
    ],
)
def test_no_comparison_gives_exactly_zero(name: str, rewards: list[float], valid: list[bool]) -> None:
    assert ESTIMATORS[name](rewards, valid).tolist() == [0.0] * len(rewards)


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_a_valid_reward_that_is_no_number_is_an_error(name: str) -> None:
    with pytest.raises(ValueError, match="not finite"):
        ESTIMATORS[name]([1, float("inf")], [True, True])


@given(st.lists(st.tuples(st.floats(-100, 100), st.booleans()), max_size=16))
@settings(deadline=None, max_examples=50)
def test_advantages_sum_to_zero_over_valid_members(members: list[tuple[float, bool]]) -> None:
    rewards, valid = [r for r, _ in members], [v for _, v in members]
    for estimate in ESTIMATORS.values():
        out = estimate(rewards, valid)
        assert out.shape == (len(members),)
        assert np.isfinite(out).all()
        assert abs(out.sum()) < 1e-6 * (1 + np.abs(out).sum())
        assert (out[~np.array(valid, dtype=bool)] == 0).all()
