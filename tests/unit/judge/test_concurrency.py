from __future__ import annotations

import random
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from judge.concurrency import WINDOW, ConcurrencyLimit


def feed(limit: ConcurrencyLimit, *, overloaded: int, of: int) -> None:
    """One window of outcomes, all places taken."""
    for i in range(of):
        limit.record(overloaded=i < overloaded, in_flight=limit.limit, epoch=limit.epoch)


def play(limit: ConcurrencyLimit, rounds: int, overloaded: Callable[[int], bool]) -> list[int]:
    """Rounds of `limit` requests at once; `overloaded` tells for each place of a round. The limit after each round."""
    after = []
    for _ in range(rounds):
        at_once, epoch = limit.limit, limit.epoch
        for place in range(at_once):
            limit.record(overloaded=overloaded(place), in_flight=at_once, epoch=epoch)
        after.append(limit.limit)
    return after


def test_it_starts_at_the_configured_limit_and_stays_there() -> None:
    limit = ConcurrencyLimit(8)
    assert play(limit, 50, lambda place: False) == [8] * 50


def test_half_of_a_window_refused_halves_it_and_a_useful_cut_stays() -> None:
    limit = ConcurrencyLimit(40)
    feed(limit, overloaded=20, of=40)  # 20 of 40 are served at once
    assert limit.limit == 20
    feed(limit, overloaded=0, of=20)  # and all 20 of 20
    assert limit.limit == 21  # the cut stays, and one more is tried


def test_a_cut_that_only_lost_answers_is_undone_and_learned_from() -> None:
    limit = ConcurrencyLimit(40)
    feed(limit, overloaded=16, of=40)  # 40 % fail
    assert limit.limit == 20
    feed(limit, overloaded=8, of=20)  # 40 % of fewer fail as well: 12 answers a round instead of 24
    assert limit.limit == 40
    for _ in range(5):
        feed(limit, overloaded=16, of=40)
    assert limit.limit == 40


def test_it_finds_what_an_overloaded_endpoint_can_take() -> None:
    limit = ConcurrencyLimit(64)
    after = play(limit, 400, lambda place: place >= 10)  # serves ten at once, refuses the others
    assert all(5 <= n <= 20 for n in after[100:])


def test_failures_by_chance_do_not_starve_it() -> None:
    rng = random.Random(3)
    limit = ConcurrencyLimit(32)
    after = play(limit, 400, lambda place: rng.random() < 0.3)
    assert sum(after) / len(after) > 0.85 * 32


def test_it_grows_only_while_its_limit_is_reached() -> None:
    limit = ConcurrencyLimit(40)
    feed(limit, overloaded=40, of=40)
    assert limit.limit == 20
    for _ in range(10 * WINDOW):
        limit.record(overloaded=False, in_flight=3, epoch=limit.epoch)
    assert limit.limit == 20


def test_outcomes_from_before_a_cut_say_nothing_about_it() -> None:
    limit = ConcurrencyLimit(40)
    old = limit.epoch
    feed(limit, overloaded=40, of=40)
    for _ in range(100):
        limit.record(overloaded=True, in_flight=20, epoch=old)
    assert limit.limit == 20
    limit.reset()
    assert limit.limit == 40


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 64), st.lists(st.tuples(st.booleans(), st.integers(1, 64)), max_size=400))
def test_never_below_one_and_never_above_what_is_configured(most: int, outcomes: list[tuple[bool, int]]) -> None:
    limit = ConcurrencyLimit(most)
    for overloaded, in_flight in outcomes:
        limit.record(overloaded=overloaded, in_flight=in_flight, epoch=limit.epoch)
        assert 1 <= limit.limit <= most
