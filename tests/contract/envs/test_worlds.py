"""What every world promises, near or far."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from envs.registry import create
from stream_rl.ports import Environment
from stream_rl.types import Observation, Split, StepResult, Task
from tests.contract.envs.serving import served

WORLDS = ["household", "household, far", "two methods"]
HOSTILE = ["", " ", "\x00\x1b[2J", "😀 é \u202e", "x" * 100_000, '{"a": [', "go to nowhere 7", "<action>look"]


@pytest.fixture(scope="module", params=WORLDS)
def world(request: pytest.FixtureRequest) -> Iterator[Environment]:
    with ExitStack() as stack:
        match request.param:
            case "household":
                yield create("household", {"admissible": True})
            case "household, far":
                url = stack.enter_context(served(sys.executable, "household", "--option", "admissible=true"))
                yield create("remote", {"url": url})
            case _:
                yield create("tests.unit.envs.worlds:TwoMethods", {})


def task(index: int, split: Split = "train") -> Task:
    return Task(environment="w", split=split, index=index)


def test_the_same_task_and_seed_are_the_same_world(world: Environment) -> None:
    first = world.reset(task(3), 1)
    assert isinstance(first, Observation)
    assert first.text
    action = first.admissible[0] if first.admissible else "look"
    answer = world.step(action)
    world.reset(task(4), 2)
    assert world.reset(task(3), 1) == first
    assert world.step(action) == answer


def test_another_task_is_another_world(world: Environment) -> None:
    texts = {world.reset(task(i, split), 0).text for i in range(5) for split in ("train", "held_out")}
    assert len(texts) > 5


def test_any_text_is_answered(world: Environment) -> None:
    for action in HOSTILE:
        world.reset(task(0), 0)
        result = world.step(action)
        assert isinstance(result, StepResult)
        assert not result.success
        assert 0.0 <= result.score <= 1.0


def test_admissible_actions_are_understood(world: Environment) -> None:
    for action in world.reset(task(1), 0).admissible:
        world.reset(task(1), 0)
        assert world.step(action).valid


def test_it_may_be_closed_twice_and_begun_again(world: Environment) -> None:
    world.reset(task(0), 0)
    world.close()
    world.close()
    assert world.reset(task(0), 0).text
    world.close()
