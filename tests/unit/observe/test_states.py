"""Time accounts: always exactly one state, and the parts are the whole."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rl.observe.states import ActivityClock, SlotClock, StateClock


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_every_second_is_counted_once() -> None:
    clock = Clock()
    states = StateClock(["wait", "train", "publish"], clock)
    clock.now = 103.0
    states.enter("train")
    clock.now = 104.5
    assert states.snapshot() == {"wait": 3.0, "train": 1.5, "publish": 0.0}
    with states.during("publish"):
        clock.now = 106.5
        with states.during("wait"):
            clock.now = 107.0
        assert states.state == "publish"
        clock.now = 107.25
    clock.now = 110.0
    assert states.state == "train"
    assert states.snapshot() == {"wait": 3.5, "train": 4.25, "publish": 2.25}


def test_a_lap_holds_what_is_new() -> None:
    clock = Clock()
    states = StateClock(["wait", "train"], clock, initial="train")
    clock.now = 101.0
    assert states.lap() == {"wait": 0.0, "train": 1.0}
    states.enter("wait")
    clock.now = 103.0
    assert states.lap() == {"wait": 2.0, "train": 0.0}
    assert states.lap() == {"wait": 0.0, "train": 0.0}
    assert states.snapshot() == {"wait": 2.0, "train": 1.0}


def test_the_state_is_restored_when_a_block_fails() -> None:
    states = StateClock(["wait", "train"], Clock())

    def fail() -> None:
        with states.during("train"):
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        fail()
    assert states.state == "wait"


def test_undeclared_names_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown state 'trian'; declared are wait, train"):
        StateClock(["wait", "train"], Clock()).enter("trian")
    with pytest.raises(ValueError, match="distinct"):
        StateClock(["wait", "wait"], Clock())
    with pytest.raises(ValueError, match="at least one"):
        StateClock([], Clock())
    with (
        pytest.raises(ValueError, match="unknown activity 'sync'"),
        ActivityClock(["a"], "idle", Clock()).during("sync"),
    ):
        pass


def test_the_most_important_activity_names_the_state() -> None:
    clock = Clock()
    account = ActivityClock(["paused", "generate", "environment"], "idle", clock)
    clock.now = 101.0  # 1 s idle
    with account.during("environment"):
        clock.now = 103.0  # 2 s environment
        with account.during("generate"):
            with account.during("generate"):
                clock.now = 106.0  # 3 s generate
                with account.during("paused"):
                    clock.now = 110.0  # 4 s paused
            clock.now = 115.0  # 5 s generate: one of two is left
        clock.now = 121.0  # 6 s environment
    assert account.state == "idle"
    assert account.snapshot() == {"paused": 4.0, "generate": 8.0, "environment": 8.0, "idle": 1.0}


NAMES = ["a", "b", "c"]


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(st.sampled_from(["enter", "lap", "snapshot"]), st.sampled_from(NAMES), st.integers(0, 50))))
def test_parts_sum_to_the_total_whatever_is_asked_in_between(steps: list[tuple[str, str, int]]) -> None:
    clock = Clock()
    states = StateClock(NAMES, clock)
    laps = dict.fromkeys(NAMES, 0.0)
    for what, name, eighths in steps:
        clock.now += eighths / 8  # exact in binary
        if what == "enter":
            states.enter(name)
        elif what == "lap":
            for state, seconds in states.lap().items():
                laps[state] += seconds
        else:
            assert sum(states.snapshot().values()) == clock.now - 100.0
    for state, seconds in states.lap().items():
        laps[state] += seconds
    assert laps == states.snapshot()
    assert sum(laps.values()) == clock.now - 100.0


def test_slots_do_one_thing_each() -> None:
    clock = Clock()
    slots = SlotClock(["generate", "environment"], "idle", size=3, clock=clock)
    with slots.during("generate"):
        clock.now = 101.0  # 1 generates, 2 idle
        with slots.during("generate"):
            clock.now = 103.0  # 2 generate, 1 idle
            with slots.during("environment", of="generate"):
                clock.now = 107.0  # 1 generates, 1 in the world, 1 idle
    clock.now = 115.0  # 3 idle
    assert slots.snapshot() == {"generate": 1.0 + 4.0 + 4.0, "environment": 4.0, "idle": 2.0 + 2.0 + 4.0 + 24.0}
    assert slots.counts() == {"generate": 0, "environment": 0, "idle": 3}
    with pytest.raises(ValueError, match="no slot is in state 'generate'"):
        slots.move("generate", "environment")


def test_more_slots_than_there_were_are_there_from_then_on() -> None:
    clock = Clock()
    slots = SlotClock(["busy"], "idle", size=1, clock=clock)
    clock.now = 102.0
    with slots.during("busy"), slots.during("busy"):
        clock.now = 105.0
    assert slots.size == 2
    assert slots.snapshot() == {"busy": 6.0, "idle": 2.0}


def test_held_time_is_reported_when_it_is_known_what_it_was() -> None:
    """8 s of an update, 2 of them a pause: of 6 s generating and 2 s idle a quarter was paused."""
    clock = Clock()
    account = ActivityClock(["paused", "generate"], "idle", clock)
    with account.during("generate"):
        clock.now = 101.0
        account.hold()
        clock.now = 105.0
        assert account.lap() == {"paused": 0.0, "generate": 1.0, "idle": 0.0}
        clock.now = 107.0
    clock.now = 109.0
    assert account.lap() == {"paused": 0.0, "generate": 0.0, "idle": 0.0}
    account.release("paused", 0.25, ("generate", "idle"))
    assert account.lap() == {"paused": 2.0, "generate": 4.5, "idle": 1.5}
    with pytest.raises(ValueError, match="not held"):
        account.release("paused", 0.5, ())
    account.hold()
    with pytest.raises(ValueError, match="once at a time"):
        account.hold()


def test_an_account_may_begin_before_it_was_made() -> None:
    clock = Clock()
    assert ActivityClock(["busy"], "idle", clock, since=98.0).snapshot() == {"busy": 0.0, "idle": 2.0}


STEP = st.tuples(
    st.sampled_from(["enter", "leave", "hold", "release", "lap"]), st.sampled_from(NAMES), st.integers(0, 50)
)


@settings(deadline=None, max_examples=100)
@given(st.lists(STEP, max_size=30), st.integers(1, 4))
def test_whatever_slots_and_activities_do_no_second_is_lost(steps: list[tuple[str, str, int]], size: int) -> None:
    """Any sequence of blocks that open and close, holds, shares of half, and laps."""
    clock = Clock()
    slots = SlotClock(NAMES, "idle", size=size, clock=clock)
    role = ActivityClock(NAMES, "idle", clock)
    laps: dict[str, dict[str, float]] = {"slots": {}, "role": {}}
    accounts: dict[str, SlotClock | ActivityClock] = {"slots": slots, "role": role}
    slot_seconds = 0.0
    held = False
    running: list[ExitStack] = []

    def lap() -> None:
        for name, account in accounts.items():
            for state, seconds in account.lap().items():
                assert seconds >= 0
                laps[name][state] = laps[name].get(state, 0.0) + seconds

    for what, state, eighths in steps:
        slot_seconds += slots.size * eighths / 8
        clock.now += eighths / 8
        match what:
            case "enter":
                block = ExitStack()
                block.enter_context(slots.during(state))
                block.enter_context(role.during(state))
                running.append(block)
            case "leave" if running:
                running.pop().close()
            case "hold" if not held:
                slots.hold()
                role.hold()
                held = True
            case "release" if held:
                slots.release("a", 0.5, ("b", "c"))
                role.release("a", 0.5, ("b", "c", "idle"))
                held = False
            case "lap":
                lap()
        assert sum(role.snapshot().values()) == pytest.approx(clock.now - 100.0)
        assert sum(slots.snapshot().values()) == pytest.approx(slot_seconds)
    if held:
        slots.release("a", 1.0, NAMES)
        role.release("a", 1.0, NAMES)
    lap()
    assert laps["role"] == pytest.approx(role.snapshot())
    assert laps["slots"] == pytest.approx(slots.snapshot())
