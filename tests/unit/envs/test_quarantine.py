"""Which tasks are refused."""

from __future__ import annotations

from envs.quarantine import Quarantine
from stream_rl.types import Task


def task(index: int) -> Task:
    return Task(environment="w", split="train", index=index)


def test_a_task_is_refused_from_its_second_dead_worker_on() -> None:
    quarantine = Quarantine()
    assert quarantine.blame(task(1), "signal 11") is False
    assert quarantine.refusal(task(1)) is None
    assert quarantine.blame(task(1), "it stalled") is True
    told = quarantine.refusal(task(1))
    assert told is not None
    assert "w/train/1" in told
    assert "it stalled" in told
    assert quarantine.tasks == ("w/train/1",)


def test_blame_is_by_task_and_splits_are_apart() -> None:
    quarantine = Quarantine()
    quarantine.blame(task(1), "x")
    quarantine.blame(task(2), "x")
    quarantine.blame(Task(environment="w", split="held_out", index=1), "x")
    assert quarantine.tasks == ()


def test_a_third_death_changes_nothing() -> None:
    quarantine = Quarantine()
    assert [quarantine.blame(task(5), f"cause {n}") for n in range(4)] == [False, True, False, False]
    assert "cause 1" in (quarantine.refusal(task(5)) or "")
