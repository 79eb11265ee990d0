from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rl.observe.intervals import difference, mean_of, paired_difference, t_975
from stream_rl.observe.progress import Estimate


def parts(e: Estimate | None) -> tuple[float, float, float]:
    assert e is not None
    return e.value, e.low, e.high


def test_the_quantiles_are_those_of_the_closed_forms() -> None:
    """One degree of freedom is the Cauchy distribution, tan(pi (p - 1/2)); two: (2p - 1) sqrt(2 / (1 - (2p - 1)^2))."""
    assert t_975(1) == pytest.approx(math.tan(math.pi * 0.475), abs=5e-4)
    assert t_975(2) == pytest.approx(0.95 * math.sqrt(2 / (1 - 0.95**2)), abs=5e-4)
    assert t_975(30) == pytest.approx(2.0423, abs=5e-4)
    assert t_975(1000) == t_975(30), "rather too wide than too narrow"
    assert t_975(3.99) == t_975(3)
    with pytest.raises(ValueError, match="no interval"):
        t_975(0.5)


def test_a_mean_by_hand() -> None:
    """1, 2, 3: mean 2, standard error 1 / sqrt(3), two degrees of freedom."""
    half = 4.303 / math.sqrt(3)
    assert parts(mean_of([1.0, 2.0, 3.0])) == pytest.approx((2.0, 2.0 - half, 2.0 + half))
    assert mean_of([1.0]) is None
    assert mean_of([]) is None


def test_pairs_take_out_what_seeds_share() -> None:
    """Seeds differ by 10, the second is always 1 better: without pairs nothing is clear, with them everything is."""
    first, second = [0.0, 10.0, 20.0], [1.0, 11.0, 21.0]
    assert parts(paired_difference(first, second)) == (1.0, 1.0, 1.0)
    value, low, high = parts(difference(first, second))
    assert value == 1.0
    assert low < 0 < high


def test_welch_by_hand() -> None:
    """Variances of the means 1/3 and 4/3: (5/3)^2 / (1/18 + 16/18) = 50/17 = 2.94 degrees of freedom, so 2."""
    half = 4.303 * math.sqrt(5 / 3)
    assert parts(difference([1.0, 2.0, 3.0], [2.0, 4.0, 6.0])) == pytest.approx((2.0, 2.0 - half, 2.0 + half))
    assert difference([1.0], [2.0, 3.0]) is None
    assert parts(difference([1.0, 1.0], [3.0, 3.0])) == (2.0, 2.0, 2.0)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.floats(-100, 100), min_size=2, max_size=8), st.lists(st.floats(-100, 100), min_size=2, max_size=8))
def test_a_difference_turns_round_with_its_sides(first: list[float], second: list[float]) -> None:
    value, low, high = parts(difference(first, second))
    back, back_low, back_high = parts(difference(second, first))
    assert low <= value <= high
    assert (back, back_low, back_high) == pytest.approx((-value, -high, -low), abs=1e-6)
