"""The world's own part: options, turns, validity. Games of the real package are played in tests/contract."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from envs.alfworld import package, world
from envs.alfworld.engine import Seen
from envs.alfworld.games import GAME_FILE, KINDS
from envs.alfworld.world import AlfWorld
from stream_rl.errors import ConfigError, EnvironmentFailed
from stream_rl.types import Split, Task
from tests.unit.envs.alfworld.builders import add_game

FIRST = "-= Welcome to TextWorld, ALFRED! =-\n\nYou see a desk 1.\n\nYour task is to: put a mug in desk."
COMMANDS = ("go to desk 1", "look", "put mug 1 in/on desk 1")


class Twin:
    """Engines of one game that is won by putting the mug down, in the words of games before ALFWorld 0.4."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.given: list[Twin] = []
        self.commands: list[str] = []
        self.opening = FIRST

    def take(self, path: str) -> Twin:
        self.taken.append(path)
        return self

    def give(self, engine: Twin) -> None:
        self.given.append(engine)

    def reset(self) -> Seen:
        return Seen(text=self.opening, commands=COMMANDS, won=False)

    def step(self, command: str) -> Seen:
        self.commands.append(command)
        won = command.startswith("put")
        return Seen(text="You put it down." if won else "You look.", commands=COMMANDS[:2], won=won)


@pytest.fixture
def twin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Twin:
    made = Twin()
    monkeypatch.setenv("STREAM_RL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(package, "require", lambda: None)
    monkeypatch.setattr(world, "engines", lambda **_: made)
    return made


@pytest.fixture
def data(tmp_path: Path) -> str:
    for number in range(5):
        add_game(tmp_path / "data", f"train/task-{number}/trial")
    add_game(tmp_path / "data", "valid_seen/task-9/trial", kind=KINDS[1])
    return str(tmp_path / "data")


def task(index: int = 0, split: Split = "train") -> Task:
    return Task(environment="alfworld", split=split, index=index)


def test_the_goal_ends_the_episode_with_success(twin: Twin, data: str) -> None:
    made = AlfWorld(data=data)
    first = made.reset(task(), 0)
    assert (first.text, first.admissible) == ("You see a desk 1.\n\nYour task is to: put a mug in desk.", COMMANDS)
    going = made.step("Go to  desk 1\n")
    assert (going.valid, going.done, going.success, going.reward, going.admissible) == (
        True,
        False,
        False,
        0.0,
        COMMANDS[:2],
    )
    assert made.step("look").valid
    twin.step("")  # the admissible commands are those of the last answer: "put" is not among them any more
    assert not made.step(COMMANDS[2]).valid
    made.reset(task(), 0)
    last = made.step(COMMANDS[2])
    assert (last.valid, last.done, last.success, last.reward, last.score, last.admissible) == (
        True,
        True,
        True,
        1.0,
        1.0,
        (),
    )


@pytest.mark.parametrize("action", ["", "dance", "put mug 1 on desk 1", "look\nlook", "x" * 100_000])
def test_what_is_not_admissible_changes_nothing(twin: Twin, data: str, action: str) -> None:
    made = AlfWorld(data=data)
    made.reset(task(), 0)
    answer = made.step(action)
    assert (answer.text, answer.valid, answer.reward, answer.done) == ("Nothing happens.", False, 0.0, False)
    assert answer.admissible == COMMANDS
    assert twin.commands == []


def test_every_action_costs_a_turn_and_the_last_one_ends_the_episode(twin: Twin, data: str) -> None:
    made = AlfWorld(data=data, max_turns=3)
    made.reset(task(), 0)
    assert [made.step(action).done for action in ("look", "dance", "look")] == [False, False, True]
    after = made.step("look")
    assert (after.valid, after.done, after.reward, after.admissible) == (False, True, 0.0, ())
    assert len(twin.commands) == 2


def test_fifty_turns_unless_told_otherwise(twin: Twin, data: str) -> None:
    made = AlfWorld(data=data)
    made.reset(task(), 0)
    assert [made.step("look").done for _ in range(50)] == [False] * 49 + [True]
    endless = AlfWorld(data=data, max_turns=0)
    endless.reset(task(), 0)
    assert not any(endless.step("look").done for _ in range(60))


def test_the_index_chooses_the_game_whatever_the_seed(twin: Twin, data: str) -> None:
    made = AlfWorld(data=data)
    assert (made.num_tasks("train"), made.num_tasks("held_out")) == (5, 1)
    for index in (0, 1, 2, 3, 4, 5):
        for seed in (0, 1):
            made.reset(task(index), seed)
    made.close()
    assert twin.taken[::2] == twin.taken[1::2]
    assert len(set(twin.taken[:10])) == 5
    assert twin.taken[10] == twin.taken[0]
    assert len(twin.given) == len(twin.taken)
    made.reset(task(0, "held_out"), 0)
    assert twin.taken[-1].endswith(f"valid_seen/task-9/trial/{GAME_FILE}")


def test_admissible_commands_can_be_left_out(twin: Twin, data: str) -> None:
    made = AlfWorld(data=data, admissible=False)
    assert made.reset(task(), 0).admissible == ()
    answer = made.step("look")
    assert (answer.valid, answer.admissible) == (True, ())


def test_a_game_that_tells_no_task_fails_and_is_named(twin: Twin, data: str) -> None:
    twin.opening = "You are in a room."
    with pytest.raises(EnvironmentFailed, match=r"trial/game\.tw-pddl: no task"):
        AlfWorld(data=data).reset(task(), 0)


def test_a_split_without_games_fails(twin: Twin, data: str) -> None:
    made = AlfWorld(data=data, held_out="valid_unseen")
    assert made.num_tasks("held_out") == 0
    with pytest.raises(EnvironmentFailed, match="no held_out game"):
        made.reset(task(0, "held_out"), 0)


def test_a_step_before_the_first_reset_fails(twin: Twin, data: str) -> None:
    with pytest.raises(EnvironmentFailed, match="call reset first"):
        AlfWorld(data=data).step("look")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kinds": ["juggle"]}, "juggle"),
        ({"kinds": []}, "kinds"),
        ({"held_out": "test"}, "held_out"),
        ({"max_turns": -1}, "max_turns"),
        ({"kinds": [KINDS[5]]}, "none of the 6 games"),
    ],
)
def test_options_that_make_no_sense_are_refused(twin: Twin, data: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        AlfWorld(data=data, **options)
    assert caught.value.path == "environments.options"


def test_what_there_is_to_play_is_said(twin: Twin, data: str, caplog: pytest.LogCaptureFixture) -> None:
    add_game(Path(data), "train/pick-TomatoSliced/trial")
    assert AlfWorld(data=data).prepare() == 0
    assert "5 train and 1 held-out games; left out: 1 sliced object" in caplog.text
