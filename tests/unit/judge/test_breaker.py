from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from judge.breaker import FIRST_PAUSE_S, LONGEST_PAUSE_S, MIN_FAILURES, SPAN_S, Breaker


def down(at_s: float = 10.0) -> Breaker:
    """A breaker that opened at `at_s`."""
    breaker = Breaker()
    for _ in range(MIN_FAILURES):
        assert breaker.state == "up"
        breaker.failed(at_s - SPAN_S, at_s, probe=False)
    assert breaker.state == "down"
    return breaker


def test_a_row_of_failures_over_a_second_opens_it() -> None:
    breaker = Breaker()
    went_down = [breaker.failed(t, t + 0.01, probe=False) for t in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6)]
    assert went_down == [False] * 7 + [True, False]  # the eighth in a row
    assert breaker.ready_s == 1.41 + FIRST_PAUSE_S


def test_a_burst_of_failures_within_a_moment_does_not() -> None:
    breaker = Breaker()
    assert not any(breaker.failed(5.0, 5.0 + i / 1000, probe=False) for i in range(100))
    assert breaker.failed(6.1, 6.1, probe=False)


def test_stalled_requests_count_from_when_they_were_sent() -> None:
    breaker = Breaker()
    breaker.succeeded(0.0)
    assert [breaker.failed(0.0, 15.0, probe=False) for _ in range(8)] == [False] * 7 + [True]


def test_a_success_in_between_starts_the_row_again() -> None:
    breaker = Breaker()
    for i in range(7):
        breaker.failed(0.0, 0.5 + i, probe=False)
    breaker.succeeded(7.0)
    assert not any(breaker.failed(0.0, 7.5, probe=False) for _ in range(10))  # sent earlier, but it lived at 7


def test_one_probe_at_a_time_and_twice_the_pause_after_a_failed_one() -> None:
    breaker = down(10.0)
    assert breaker.ready_s == 11.0
    assert breaker.sent()
    assert breaker.state == "probing"
    breaker.failed(9.0, 11.1, probe=False)  # a late one from before
    assert breaker.state == "probing"
    breaker.failed(11.0, 12.0, probe=True)
    assert (breaker.state, breaker.ready_s) == ("down", 14.0)
    breaker.sent()
    assert breaker.succeeded(14.5)
    assert (breaker.state, breaker.ready_s) == ("up", 0.0)
    assert not breaker.succeeded(14.6)


def test_a_probe_given_up_may_be_repeated() -> None:
    breaker = down(10.0)
    breaker.sent()
    breaker.abandoned(probe=True)
    assert (breaker.state, breaker.ready_s) == ("down", 11.0)


def test_the_pause_has_a_longest() -> None:
    breaker = down(0.0)
    for _ in range(20):
        breaker.sent()
        breaker.failed(0.0, 0.0, probe=True)
    assert breaker.ready_s == LONGEST_PAUSE_S


@settings(deadline=None, max_examples=100)
@given(st.lists(st.sampled_from(["ok", "bad", "sent", "lost"]), max_size=60))
def test_down_means_no_success_since_and_up_needs_no_wait(events: list[str]) -> None:
    breaker, now, probe = Breaker(), 0.0, False
    for event in events:
        now += 0.4
        match event:
            case "ok":
                breaker.succeeded(now)
                assert breaker.state == "up"
            case "bad":
                breaker.failed(now - 0.1, now, probe=probe)
                probe = False
            case "sent" if breaker.ready_s <= now and breaker.state != "probing":
                probe = breaker.sent()
            case "lost":
                breaker.abandoned(probe=probe)
                probe = False
        assert (breaker.state == "up") == (breaker.ready_s == 0.0)
        assert breaker.ready_s <= now + LONGEST_PAUSE_S
