"""The pure decisions about waiting and choosing."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judge.limits import BURST_S, RateBudget
from judge.retry import BASE_S, CAP_S, attempt_s, backoff_s, parse_retry_after
from judge.router import EndpointLoad, JudgeRouter
from judge.session import is_loopback, proxy_for


@settings(deadline=None, max_examples=100)
@given(st.integers(1, 2000), st.integers(0, 2**32))
def test_full_jitter_stays_below_a_doubling_bound(failures: int, seed: int) -> None:
    wait = backoff_s(failures, None, random.Random(seed))
    assert 0.0 <= wait <= min(CAP_S, BASE_S * 2 ** min(failures - 1, 20))


@settings(deadline=None, max_examples=50)
@given(st.floats(0, 1000), st.integers(0, 2**32))
def test_retry_after_is_a_lower_bound(seconds: float, seed: int) -> None:
    assert seconds <= backoff_s(1, seconds, random.Random(seed)) <= seconds + BASE_S


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, None),
        ("3", 3.0),
        ("0.5", 0.5),
        ("-1", 0.0),
        ("soon", None),
        ("nan", None),
        ("inf", None),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 40.0),
        ("Thu, 01 Jan 1970 00:00:10 GMT", 0.0),
    ],
)
def test_retry_after_headers(header: str | None, expected: float | None) -> None:
    assert parse_retry_after(header, now_unix_s=60.0) == expected


def test_an_attempt_leaves_time_for_another() -> None:
    assert attempt_s(30.0) == 15.0
    assert attempt_s(0.8) == 0.5
    assert attempt_s(0.4) == 0.4


def load(index: int, in_flight: int = 0, mean_s: float | None = 1.0, wait_s: float = 0.0) -> EndpointLoad:
    return EndpointLoad(index=index, in_flight=in_flight, concurrency=4, mean_s=mean_s, wait_s=wait_s)


def test_the_router_takes_the_shortest_expected_wait() -> None:
    router = JudgeRouter()
    chosen = [
        router.choose([load(0, in_flight=1), load(1)]),  # both free: the emptier
        router.choose([load(0, mean_s=3.0), load(1, in_flight=3)]),  # 3 s against 1 s
        router.choose([load(0, wait_s=5.0), load(1, in_flight=4)]),  # 6 s against 2 s
        router.choose([load(0), load(1)]),  # a tie goes to the first
    ]
    assert [c.index for c in chosen if c] == [1, 1, 1, 0]
    assert router.choose([]) is None


def test_request_limit_of_a_minute() -> None:
    budget = RateBudget(requests_per_minute=60, tokens_per_minute=0)
    sent, now = 0, 1000.0
    while now < 1060.0:
        wait = budget.wait_s(now)
        if wait:
            now += wait
        else:
            budget.take(now, 100)
            sent += 1
    assert 60 <= sent <= 60 + BURST_S + 1


def test_token_limit_counts_tokens() -> None:
    budget = RateBudget(requests_per_minute=0, tokens_per_minute=6000)
    budget.take(0.0, 1000)
    assert budget.wait_s(0.0) == pytest.approx(10.0)  # 1000 tokens at 100 a second
    assert budget.wait_s(10.0) == 0.0
    assert RateBudget(0, 0).wait_s(0.0) == 0.0


def test_loopback_never_goes_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.invalid:3128")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    for url in ("http://127.0.0.1:8000/v1", "http://localhost/v1", "http://[::1]:9/v1", "http://127.9.9.9/v1"):
        assert proxy_for(url) is None
    assert proxy_for("http://judge.example/v1") == "http://proxy.invalid:3128"
    monkeypatch.setenv("no_proxy", "judge.example")
    assert proxy_for("http://judge.example/v1") is None
    assert not is_loopback("10.0.0.1")
