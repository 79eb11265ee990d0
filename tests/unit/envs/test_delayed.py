from __future__ import annotations

import time

import pytest

from envs import registry
from envs.household.world import Household
from stream_rl.errors import ConfigError
from stream_rl.types import Task

TASK = Task(environment="envs.delayed:Delayed", split="train", index=3)


def test_the_world_is_the_same_and_every_answer_takes_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    slow = registry.create(
        "envs.delayed:Delayed", {"world": "household", "step_s": 0.25, "options": {"admissible": True}}
    )
    plain = Household(admissible=True)
    assert slow.reset(TASK, 0) == plain.reset(TASK, 0)
    assert slow.step("look") == plain.step("look")
    assert slept == [0.25, 0.25]
    slow.close()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"world": "household", "step_s": -1.0}, "no delay"),
        ({"world": "houshold", "step_s": 1.0}, "no world is called 'houshold'"),
        ({"world": "household", "step_s": 1.0, "options": {"levle": "easy"}}, "household does not take"),
    ],
)
def test_what_cannot_be_made_is_refused(options: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        registry.create("envs.delayed:Delayed", options)
