from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learner.members import Member
from learner.within import choose, step_signals, within_rho

SIGNAL = np.array([0.0, 1.0, 2.0])


def member(rewards: list[float], anchors: str) -> Member:
    return Member(
        reward=sum(rewards),
        valid=True,
        step_rewards=np.array(rewards),
        step_valid=np.ones(len(rewards), dtype=np.bool_),
        anchors=tuple(anchors),
    )


def test_step_signals_by_hand() -> None:
    # returns at gamma 1/2: [1/2, 1] and [0, 0]; both begin at s (mean 1/4), then t and u are alone
    found = step_signals([member([0, 1], "st"), member([0, 0], "su")], gamma=0.5)
    assert [f.tolist() for f in found] == [[0.25, 0.0], [-0.25, 0.0]]
    assert step_signals([], gamma=0.5) == []


def test_mean_over_members_in_which_a_correlation_is_defined() -> None:
    rising, falling, flat = np.array([1.0, 2.0, 3.0]), np.array([3.0, 2.0, 1.0]), np.ones(3)
    # ranks (2, 1, 3) against (1, 2, 3): 1 - 6 * 2 / (3 * 8) = 1/2
    assert within_rho([np.array([0.5, 0.1, 0.9])], [SIGNAL]) == pytest.approx(0.5)
    assert within_rho([rising, falling, rising, flat], [SIGNAL] * 4) == pytest.approx(1 / 3)
    assert within_rho([flat, rising], [SIGNAL, flat]) is None
    # a turn without D is left out
    assert within_rho([np.array([1.0, np.nan, 0.5])], [SIGNAL]) == pytest.approx(-1)


def test_the_choice_is_made_by_half_of_the_members_and_measured_by_the_others() -> None:
    good, bad = SIGNAL, -SIGNAL
    # hint 0 misleads members 0 and 2; hint 1 is right in them and misleads 1 and 3
    found = choose([[bad, good, bad, good], [good, bad, good, bad]], [SIGNAL] * 4, min_rho=0.0)
    assert (found.index, found.rho, found.held_out_rho) == (1, 1.0, -1.0)


def test_no_hint_good_enough_is_none() -> None:
    assert choose([[-SIGNAL] * 2], [SIGNAL] * 2, min_rho=0.0).index is None
    assert choose([[-SIGNAL] * 2], [SIGNAL] * 2, min_rho=-1.0).index == 0
    assert choose([[SIGNAL] * 2], [np.zeros(3)] * 2, min_rho=0.0).index is None
    assert choose([], [SIGNAL], min_rho=0.0).index is None


def test_equal_hints_the_first() -> None:
    assert choose([[SIGNAL], [2 * SIGNAL]], [SIGNAL], min_rho=0.0).index == 0


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(2, 6))
@settings(deadline=None, max_examples=30)
def test_any_rising_map_of_the_gap_chooses_the_same(seed: int, hints: int, turns: int) -> None:
    rng = np.random.default_rng(seed)
    gaps = rng.normal(size=(hints, 5, turns))
    signals = list(rng.integers(0, 3, size=(5, turns)).astype(np.float64))
    found = choose([list(g) for g in gaps], signals, min_rho=-1.0)
    assert found == choose([list(np.exp(3 * g)) for g in gaps], signals, min_rho=-1.0)
