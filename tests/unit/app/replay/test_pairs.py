from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rl.app.replay.pairs import PairSums, kendall

PAIRS = st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=2, max_size=12)


@given(PAIRS)
@settings(deadline=None, max_examples=30)
def test_kendall_is_its_definition(pairs: list[tuple[int, int]]) -> None:
    """Concordant minus discordant pairs, over the geometric mean of the pairs untied on either side."""
    agree = untied_a = untied_b = 0
    for (a1, b1), (a2, b2) in itertools.combinations(pairs, 2):
        agree += (a1 < a2) - (a1 > a2) if b1 < b2 else (a1 > a2) - (a1 < a2) if b1 > b2 else 0
        untied_a += a1 != a2
        untied_b += b1 != b2
    a, b = np.array(pairs, float).T
    found = kendall(a, b)
    if untied_a and untied_b:
        assert found == pytest.approx(agree / math.sqrt(untied_a * untied_b))
    else:
        assert found is None


@given(PAIRS, PAIRS)
@settings(deadline=None, max_examples=30)
def test_pearson_over_groups_is_that_of_all_turns(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    sums = PairSums()
    for pairs in (first, second):
        a, b = np.array(pairs, float).T
        sums.add(a, b, kendall(a, b))
    a, b = np.array(first + second, float).T
    found = sums.facts()
    assert found.turns == len(first) + len(second)
    assert found.difference == pytest.approx(float(np.abs(a - b).mean()))
    if np.ptp(a) and np.ptp(b):
        assert found.pearson == pytest.approx(float(np.corrcoef(a, b)[0, 1]))
    else:
        assert found.pearson is None


def test_signs_and_zeros() -> None:
    sums = PairSums()
    sums.add(np.array([1.0, -1.0, 0.0, 2.0]), np.array([-1.0, 0.0, 3.0, 2.0]), None)
    found = sums.facts()
    assert (found.flipped, found.silenced, found.woken) == (1, 1, 1)


def test_groups_without_a_rank_correlation_are_in_no_mean() -> None:
    sums, turns = PairSums(), np.zeros(2)
    for tau in (1.0, None, 0.5):
        sums.add(turns, turns, tau)
    assert sums.facts().kendall == 0.75


def test_nothing_is_not_zero() -> None:
    found = PairSums().facts()
    assert (found.turns, found.pearson, found.kendall, found.difference) == (0, None, None, None)
