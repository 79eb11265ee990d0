from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judge.router import EndpointLoad, Wish, choose

NOW = 100.0


def load(
    index: int,
    *,
    in_flight: int = 0,
    limit: int = 4,
    latency_s: float | None = 1.0,
    ready_s: float = 0.0,
    tier: int = 0,
    down: bool = False,
    interval_s: float = 0.0,
) -> EndpointLoad:
    return EndpointLoad(
        index=index,
        tier=tier,
        limit=limit,
        in_flight=in_flight,
        latency_s=latency_s,
        interval_s=interval_s,
        ready_s=ready_s,
        down=down,
    )


def chosen(*loads: EndpointLoad, wish: Wish | None = None, claims: dict[int, int] | None = None) -> tuple[int, bool]:
    choice = choose(wish or Wish(), loads, NOW, claims)
    assert choice is not None
    return choice.index, choice.now


@pytest.mark.parametrize(
    ("loads", "expected"),
    [
        ([load(0), load(1)], (0, True)),  # a tie goes to the first
        ([load(0, in_flight=1), load(1)], (1, True)),  # both have room: the emptier
        ([load(0, latency_s=3.0), load(1, in_flight=3)], (1, True)),  # 3 s against 1.75 s
        ([load(0, in_flight=4), load(1, latency_s=9.0)], (0, False)),  # a place in 0.25 s is worth the wait
        ([load(0, in_flight=4), load(1, latency_s=2.0)], (1, True)),  # 2.25 s against 2 s
        ([load(0, ready_s=NOW + 5.0), load(1, in_flight=4)], (1, False)),  # 6 s against 2.25 s
        ([load(0, ready_s=NOW + 0.6), load(1, latency_s=9.0)], (1, True)),  # more than half a service time is long
        ([load(0, latency_s=None), load(1, in_flight=1)], (0, True)),  # unknown: as good as the best that is known
        ([load(0, latency_s=None, in_flight=1), load(1, latency_s=None)], (1, True)),
    ],
)
def test_the_least_expected_time_to_an_answer(loads: list[EndpointLoad], expected: tuple[int, bool]) -> None:
    assert chosen(*loads) == expected


def test_a_long_queue_does_not_wait_for_the_fast_one_while_a_slow_one_idles() -> None:
    fast, slow = load(0, in_flight=4), load(1, latency_s=20.0)
    # A place in 0.25 s for the first in line; the second waits 0.5 s, half a service time; the third would wait longer.
    assert [chosen(fast, slow, claims={0: n}) for n in range(4)] == [(0, False), (0, False), (1, True), (1, True)]


def test_nobody_waits_for_the_better_one_longer_than_it_gains() -> None:
    choice = choose(Wish(), [load(0, in_flight=4), load(1, latency_s=9.0)], NOW)
    assert choice is not None
    assert choice.look_again_s == pytest.approx(9.0 - 2.25)


def test_lower_tiers_are_preferred_while_they_keep_up() -> None:
    assert chosen(load(0, tier=1, latency_s=0.1), load(1, latency_s=5.0)) == (1, True)
    assert chosen(load(0, tier=1), load(1, in_flight=4)) == (1, False)  # a place is near
    assert chosen(load(0, tier=1), load(1, in_flight=4), claims={1: 2}) == (0, True)  # but not for the third
    assert chosen(load(0, tier=1), load(1, ready_s=NOW + 10.0)) == (0, True)
    assert chosen(load(0, tier=1, in_flight=4), load(1, ready_s=NOW + 10.0)) == (0, False)


def test_what_a_request_learned_is_respected() -> None:
    loads = load(0), load(1, latency_s=3.0)
    assert chosen(*loads, wish=Wish(refused={0})) == (1, True)
    assert choose(Wish(refused={0, 1}), loads, NOW) is None
    assert chosen(*loads, wish=Wish(avoided={0})) == (1, True)
    assert chosen(*loads, wish=Wish(avoided={0, 1})) == (0, True)  # better than none
    assert chosen(load(0), load(1, down=True, ready_s=NOW + 9.0), wish=Wish(avoided={0})) == (0, True)
    assert chosen(*loads, wish=Wish(not_before_s={0: NOW + 8.0})) == (1, True)


def test_what_is_down_gets_one_request_when_its_probe_is_due() -> None:
    assert chosen(load(0), load(1, down=True, limit=1, ready_s=NOW + 1.0)) == (0, True)
    assert chosen(load(0), load(1, down=True, limit=1, latency_s=50.0, ready_s=NOW)) == (1, True)
    assert chosen(load(0, in_flight=4, latency_s=9.0), load(1, down=True, limit=1, in_flight=1)) == (0, False)


def test_how_long_nothing_can_be_asked_at_all() -> None:
    choice = choose(Wish(), [load(0, ready_s=NOW + 7.0), load(1, ready_s=NOW + 3.0)], NOW)
    assert choice is not None
    assert (choice.index, choice.now) == (1, False)
    assert choice.earliest_s == choice.look_again_s == pytest.approx(3.0)
    busy = choose(Wish(), [load(0, in_flight=4)], NOW)
    assert busy is not None
    assert (busy.earliest_s, busy.look_again_s) == (0.0, math.inf)
    assert choose(Wish(), [], NOW) is None


@settings(deadline=None, max_examples=150)
@given(
    st.lists(
        st.builds(
            load,
            st.integers(0, 1000),
            in_flight=st.integers(0, 5),
            limit=st.integers(1, 5),
            latency_s=st.none() | st.floats(0.0, 50.0),
            ready_s=st.floats(0.0, 200.0),
            tier=st.integers(0, 2),
            down=st.booleans(),
            interval_s=st.floats(0.0, 5.0),
        ),
        min_size=1,
        max_size=5,
        unique_by=lambda made: made.index,
    ),
    st.integers(0, 10),
)
def test_a_choice_for_now_is_possible_now_and_something_possible_is_never_left_for_a_long_wait(
    loads: list[EndpointLoad], claims: int
) -> None:
    choice = choose(Wish(), loads, NOW, {made.index: claims for made in loads})
    assert choice is not None
    picked = next(made for made in loads if made.index == choice.index)
    if choice.now:
        assert picked.free > 0
        assert picked.ready_s <= NOW
    elif any(made.free and made.ready_s <= NOW for made in loads):
        assert not picked.down
        assert max(0.0, picked.ready_s - NOW) <= 0.5 * (picked.latency_s if picked.latency_s is not None else 50.0)
