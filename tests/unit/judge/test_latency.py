from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judge.latency import HALF_LIFE_S, MEAN_RATE, MIN_ANSWERS, WINDOW, Latency


def answered(*seconds: float, at_s: float = 100.0) -> Latency:
    """Requests that were all answered at `at_s`."""
    latency = Latency()
    for s in seconds:
        latency.sent(at_s - s)
        latency.answered(at_s - s, at_s)
    return latency


def test_percentiles_by_nearest_rank() -> None:
    latency = answered(*(i / 100 for i in range(1, 101)))
    assert latency.quantile_s(0.5) == pytest.approx(0.51)
    assert latency.quantile_s(0.95) == pytest.approx(0.96)


def test_a_percentile_of_few_is_none() -> None:
    assert answered(*[1.0] * (MIN_ANSWERS - 1)).quantile_s(0.95) is None
    assert answered(*[1.0] * MIN_ANSWERS).quantile_s(0.95) == pytest.approx(1.0)


def test_nothing_known_nothing_expected() -> None:
    latency = Latency()
    assert latency.expected_s(5.0) is None
    latency.sent(5.0)
    latency.failed(5.0, 5.1)
    assert latency.expected_s(6.0) is None


def test_a_stall_shows_before_it_ends() -> None:
    latency = answered(2.0, at_s=100.0)
    for sent_s in (100.0, 104.0):
        latency.sent(sent_s)
    assert latency.expected_s(102.0) == pytest.approx(2.0)  # mean age 0: the mean answer time is the better guess
    assert latency.expected_s(112.0) == pytest.approx(10.0)  # ages 12 and 8


def test_a_request_given_up_is_a_lower_bound() -> None:
    latency = answered(2.0)
    latency.sent(100.0)
    latency.gave_up(100.0, 101.0)  # an answer within a second would be news; none within a second is not
    assert latency.mean_s == pytest.approx(2.0)
    latency.sent(101.0)
    latency.gave_up(101.0, 113.0)
    assert latency.mean_s == pytest.approx(2.0 + MEAN_RATE * 10.0)


def test_an_old_mean_is_believed_less_until_somebody_asks() -> None:
    latency = answered(8.0, at_s=100.0)
    assert latency.expected_s(100.0 + HALF_LIFE_S) == pytest.approx(4.0)
    assert latency.expected_s(100.0 + 3 * HALF_LIFE_S) == pytest.approx(1.0)
    latency.sent(115.0)
    assert latency.expected_s(115.0) == pytest.approx(8.0)  # one tries it; others go by what is known


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(0.0, 100.0), min_size=MIN_ANSWERS, max_size=3 * WINDOW))
def test_percentiles_are_over_the_last_answers(seconds: list[float]) -> None:
    latency = Latency()
    for s in seconds:
        latency.sent(0.0)
        latency.answered(0.0, s)
    recent = sorted(seconds[-WINDOW:])
    for q in (0.0, 0.5, 0.95, 1.0):
        value = latency.quantile_s(q)
        assert value is not None
        assert value in recent
        assert sum(s < value for s in recent) <= q * len(recent)
        assert sum(s <= value for s in recent) >= q * len(recent)
    assert latency.in_flight == 0
