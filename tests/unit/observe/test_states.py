"""Time accounts: always exactly one state, and the parts are the whole."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rl.observe.states import ActivityClock, StateClock


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
