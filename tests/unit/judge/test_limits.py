from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judge.limits import BURST_S, MINUTE_S, RateBudget
from judge.tokens import RequestSize, TokenEstimate


def spend(budget: RateBudget, tokens: list[int], pauses_s: list[float]) -> list[tuple[float, int]]:
    """Send requests as early as the budget allows after each pause: when, and how many tokens."""
    now, sent = 1000.0, []
    for size, pause_s in zip(tokens, pauses_s, strict=True):
        now += pause_s
        now += budget.wait_s(now, size)
        now += budget.wait_s(now, size)  # rounding
        budget.take(now, size)
        sent.append((now, size))
    return sent


def test_requests_flow_at_their_rate_after_a_burst() -> None:
    sent = spend(RateBudget(60, 0), [10] * 20, [0.0] * 20)
    waits = [round(b - a, 6) for (a, _), (b, _) in pairwise(sent)]
    assert waits == [0.0] * 5 + [1.0] * 14  # five seconds' allowance at once, and the next


def test_no_minute_holds_more_than_its_limit_though_there_are_bursts() -> None:
    sent = spend(RateBudget(60, 0), [10] * 150, [0.0] * 150)
    first = [t for t, _ in sent if t < sent[0][0] + MINUTE_S]
    assert len(first) == 60
    assert len([t for t, _ in sent if t < sent[0][0] + 2 * MINUTE_S]) == 120  # and nothing of it is wasted


def test_tokens_flow_at_their_rate() -> None:
    budget = RateBudget(0, 6000)  # 100 a second
    budget.take(50.0, 1500)
    assert budget.wait_s(50.0, 1) == pytest.approx(10.0)  # 15 s worth, 5 s of it saved up
    assert budget.wait_s(60.0, 1) == 0.0
    assert budget.interval_s(200) == pytest.approx(2.0)


def test_reported_usage_corrects_the_estimate_both_ways() -> None:
    budget = RateBudget(0, 6000)
    spending = budget.take(50.0, 1500)
    budget.correct(spending, 700)
    assert budget.wait_s(50.0, 1) == pytest.approx(2.0)
    budget.correct(spending, 1700)
    assert budget.wait_s(50.0, 1) == pytest.approx(12.0)
    assert budget.wait_s(62.0, 4300) == 0.0  # 6000 - 1700
    assert budget.wait_s(62.0, 4301) == pytest.approx(50.0 + MINUTE_S - 62.0)


def test_a_request_larger_than_a_minute_goes_alone() -> None:
    budget = RateBudget(0, 600)
    budget.take(0.0, 10)
    assert budget.wait_s(10.0, 9000) == pytest.approx(MINUTE_S - 10.0)
    assert budget.wait_s(MINUTE_S, 9000) == 0.0


def test_no_limit_no_wait() -> None:
    budget = RateBudget(0, 0)
    for _ in range(100):
        budget.correct(budget.take(0.0, 10**9), 10**9)
    assert budget.wait_s(0.0, 10**9) == 0.0


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 40),
    st.integers(100, 4000),
    st.lists(st.tuples(st.integers(1, 100), st.floats(0.0, 20.0)), min_size=1, max_size=120),
)
def test_no_span_of_a_minute_is_ever_above_either_limit(
    requests: int, tokens: int, work: list[tuple[int, float]]
) -> None:
    sent = spend(RateBudget(requests, tokens), [size for size, _ in work], [pause_s for _, pause_s in work])
    for i, (start, _) in enumerate(sent):
        span = [size for t, size in sent[i:] if t < start + 60.0]
        assert len(span) <= requests
        assert sum(span) <= tokens
        for until, _ in sent[i:]:
            within = sum(start <= t <= until for t, _ in sent)
            assert within <= requests / 60 * (until - start + BURST_S) + 1 + 1e-6


def test_tokens_are_estimated_by_length_then_by_experience() -> None:
    estimate = TokenEstimate()
    size = RequestSize(chars=4000, max_tokens=1000)
    assert estimate.of(size) == 1000 + 500
    estimate.learn(size, 0, 0)  # an endpoint that does not count
    assert estimate.of(size) == 1500
    estimate.learn(size, 800, 100)
    assert estimate.of(size) == 900
    assert estimate.of(RequestSize(chars=8000, max_tokens=500)) == 1600 + 50
    estimate.learn(size, 1800, 100)  # later reports move it a tenth of the way
    assert estimate.of(size) == 1000
