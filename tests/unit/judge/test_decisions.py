"""When to try again, and who goes through a proxy."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judge.retry import BASE_S, CAP_S, attempt_s, backoff_s, parse_retry_after
from judge.session import is_loopback, proxy_for


@settings(deadline=None, max_examples=100)
@given(st.integers(1, 2000), st.integers(0, 2**32))
def test_full_jitter_stays_below_a_doubling_bound(failures: int, seed: int) -> None:
    wait = backoff_s(failures, None, random.Random(seed))
    assert 0.0 <= wait <= min(CAP_S, BASE_S * 2 ** min(failures - 1, 20))


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 50), st.floats(-1.0, 30.0), st.integers(0, 2**32))
def test_a_wait_nobody_asked_for_leaves_time_for_an_answer(failures: int, remaining_s: float, seed: int) -> None:
    wait = backoff_s(failures, None, random.Random(seed), remaining_s=remaining_s)
    assert 0.0 <= wait <= max(0.0, remaining_s) / 4


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
        ("Thu, 01 Jan 1970 00:01:40 -0000", 40.0),
        ("Thu, 01 Jan 1970 02:01:40 +0200", 40.0),
    ],
)
def test_retry_after_headers(header: str | None, expected: float | None) -> None:
    assert parse_retry_after(header, now_unix_s=60.0) == expected


def test_an_attempt_leaves_time_for_another() -> None:
    assert attempt_s(30.0) == 15.0
    assert attempt_s(0.8) == 0.5
    assert attempt_s(0.4) == 0.4


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
