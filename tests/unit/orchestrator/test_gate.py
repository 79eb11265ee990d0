from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rl.orchestrator.gate import Gate


def test_depth_zero_admits_one_round_and_waits_for_its_weights() -> None:
    gate = Gate(depth=0, candidates=2, last_round=3)
    assert [gate.admit("a"), gate.admit("b")] == [0, 0]
    assert gate.open_round is None
    gate.round_live(0)
    assert gate.open_round == 1


def test_permits_are_depth_plus_one_times_candidates() -> None:
    gate = Gate(depth=2, candidates=3, last_round=100)
    admitted = [gate.admit(f"g{i}") for i in range(9)]
    assert admitted == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert (gate.taken, gate.free, gate.capacity) == (9, 0, 9)
    with pytest.raises(ValueError, match="9 of 9 are taken"):
        gate.admit("one too many")


def test_a_discarded_group_is_refilled_in_its_own_round() -> None:
    gate = Gate(depth=1, candidates=2, last_round=9)
    for name in "abcd":
        gate.admit(name)
    assert gate.discard("b") == 0
    assert gate.admit("e") == 0
    assert gate.members(0) == ("a", "e")


def test_no_round_past_the_last_is_opened() -> None:
    gate = Gate(depth=4, candidates=1, last_round=2)
    gate.admit("a")
    gate.admit("b")
    assert gate.open_round is None
    gate.round_live(0)
    gate.round_live(1)
    assert gate.finished
    assert gate.open_round is None


def test_a_round_is_live_once_in_order_and_complete() -> None:
    gate = Gate(depth=1, candidates=2, last_round=9)
    gate.admit("a")
    with pytest.raises(ValueError, match="1 of 2 groups"):
        gate.round_live(0)
    gate.admit("b")
    with pytest.raises(ValueError, match="live version is 0"):
        gate.round_live(1)


def test_restored_groups_keep_their_rounds_after_a_fall_back() -> None:
    gate = Gate(depth=0, candidates=1, last_round=9, version=2)
    gate.restore("from round 4", 4)
    gate.restore("from round 2", 2)
    assert gate.open_round is None
    gate.round_live(2)
    assert gate.admit("refill of 3") == 3
    gate.round_live(3)
    assert gate.open_round is None  # round 4 is restored and full
    gate.round_live(4)
    assert gate.open_round == 5


def test_in_a_window_a_straggler_takes_the_place_of_a_finished_group_of_a_later_round() -> None:
    gate = Gate(depth=2, candidates=2, last_round=9, window=2)
    for name in "abcdef":
        gate.admit(name)
    assert gate.exchange("a", "c") == (1, 0)
    assert gate.members(0) == ("b", "c")
    assert gate.members(1) == ("d", "a")
    assert gate.taken == 6
    assert not gate.may_move("a", 2)  # admitted to round 0: 2 rounds later is past a window of 2
    with pytest.raises(ValueError, match="admitted to round 0, and the window is 2"):
        gate.exchange("a", "e")
    with pytest.raises(ValueError, match="cannot go to round 0"):
        gate.exchange("d", "b")  # a group never goes to an earlier round for one that is late
    assert gate.exchange("d", "e") == (2, 1)


def test_a_restored_straggler_is_as_old_as_its_first_round() -> None:
    gate = Gate(depth=2, candidates=1, last_round=9, window=2)
    gate.restore("late", 1, admitted=0)
    gate.restore("next", 2)
    with pytest.raises(ValueError, match="admitted to round 0"):
        gate.exchange("late", "next")


@st.composite
def _schedules(draw: st.DrawFn) -> tuple[int, int, int, list[int]]:
    return (
        draw(st.integers(0, 3)),
        draw(st.integers(1, 4)),
        draw(st.integers(1, 6)),
        draw(st.lists(st.integers(0, 9), max_size=120)),
    )


@settings(deadline=None, max_examples=200)
@given(_schedules(), st.integers(1, 4))
def test_under_any_schedule_lag_is_bounded_and_permits_are_conserved(
    schedule: tuple[int, int, int, list[int]], window: int
) -> None:
    """Random admission, failure, exchange and training: lag <= S + W - 1, permits add up, every round fills."""
    depth, candidates, last_round, choices = schedule
    gate = Gate(depth=depth, candidates=candidates, last_round=last_round, window=window)
    born: dict[str, int] = {}  # live version when the group was leased: no token of it is older
    rounds: dict[str, int] = {}
    trained: Counter[int] = Counter()
    serial = 0

    def step(choice: int) -> None:
        nonlocal serial
        if choice < 6 and gate.open_round is not None:
            name = f"g{serial}"
            serial += 1
            born[name] = gate.version
            rounds[name] = gate.admit(name)
        elif choice == 6 and len(born) > 1:
            early, late = sorted(born)[0], sorted(born)[-1]
            if rounds[early] < rounds[late] and gate.may_move(early, rounds[late]):
                rounds[early], rounds[late] = gate.exchange(early, late)
        elif choice == 7 and born:
            victim = sorted(born)[choice % len(born)]
            assert gate.discard(victim) == rounds.pop(victim)
            del born[victim]
        elif not gate.finished and gate.is_full(gate.version):
            for name in gate.round_live(gate.version):
                assert 0 <= rounds[name] - born[name] <= depth + window - 1
                trained[rounds.pop(name)] += 1
                del born[name]
        assert gate.taken + gate.free == gate.capacity == (depth + 1) * candidates
        assert gate.taken == len(born)

    for choice in choices:
        step(choice)
    for _ in range(4 * (last_round + 1) * (depth + 1) * candidates):  # a fair schedule from here on ends the run
        step(0)
        step(9)
    assert gate.finished
    assert gate.free == gate.capacity
    assert trained == Counter(dict.fromkeys(range(last_round), candidates))
