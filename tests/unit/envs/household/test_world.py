from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.household.language import NOTHING_HAPPENS, Command, parse_command
from envs.household.room import Room
from envs.household.solver import solve
from envs.household.tasks import Goal, HouseholdTask, generate_task
from envs.household.world import Household
from stream_rl.errors import ConfigError, EnvironmentFailed
from stream_rl.ports import Environment
from stream_rl.types import Task

TASK = Task(environment="household", split="train", index=3)

HOT_APPLE = HouseholdTask(
    goal=Goal(kind="heat", object="apple", target="countertop"),
    places=("countertop 1", "fridge 1", "microwave 1"),
    located={"apple 1": "fridge 1", "mug 1": "countertop 1"},
)


def play(task: HouseholdTask, *actions: str) -> list[str]:
    room = Room(task)
    return [room.obey(parse_command(action)) for action in actions]


def started(**options: Any) -> Household:
    world = Household(**options)
    world.reset(TASK, seed=0)
    return world


def test_an_episode_by_hand() -> None:
    room = Room(HOT_APPLE)
    script = [
        ("look", "You are in the middle of a room."),
        ("go to countertop 1", "On the countertop 1, you see mug 1."),
        ("go to fridge 1", "The fridge 1 is closed."),
        ("take apple 1 from fridge 1", NOTHING_HAPPENS),
        ("open fridge 1", "You open the fridge 1. In it, you see apple 1."),
        ("open fridge 1", NOTHING_HAPPENS),
        ("take apple 1 from fridge 1", "You pick up the apple 1 from the fridge 1."),
        ("inventory", "You are carrying: apple 1."),
        ("examine apple 1", "There is nothing special about the apple 1."),
        ("look", "The fridge 1 is open. In it, you see nothing."),
        ("heat apple 1 with microwave 1", NOTHING_HAPPENS),
        ("close fridge 1", "You close the fridge 1."),
        ("go to microwave 1", "The microwave 1 is closed."),
        ("cool apple 1 with microwave 1", NOTHING_HAPPENS),
        ("heat apple 1 with microwave 1", "You heat the apple 1 using the microwave 1."),
        ("go to countertop 1", "On the countertop 1, you see mug 1."),
        ("move apple 1 to fridge 1", NOTHING_HAPPENS),
        ("move apple 1 to countertop 1", "You move the apple 1 to the countertop 1."),
    ]
    for action, answer in script:
        assert not room.solved()
        assert room.obey(parse_command(action)) == answer, action
    assert room.solved()


def test_a_cold_apple_on_the_countertop_is_not_a_hot_one() -> None:
    room = Room(HOT_APPLE)
    for action in ["go to fridge 1", "open fridge 1", "take apple 1 from fridge 1", "cool apple 1 with fridge 1"]:
        room.obey(parse_command(action))
    room.obey(parse_command("go to countertop 1"))
    assert room.obey(parse_command("move apple 1 to countertop 1")).startswith("You move")
    assert not room.solved()


def test_two_objects_are_needed_for_two() -> None:
    task = HouseholdTask(
        goal=Goal(kind="two", object="mug", target="shelf"),
        places=("desk 1", "shelf 1", "shelf 2"),
        located={"mug 1": "desk 1", "mug 2": "desk 1"},
    )
    room = Room(task)
    solved = []
    for action in solve(task):
        room.obey(parse_command(action))
        solved.append(room.solved())
    assert solved == [False] * (len(solved) - 1) + [True]


def test_the_lamp_lights_what_is_held_beside_it() -> None:
    task = HouseholdTask(
        goal=Goal(kind="light", object="book", target="desklamp"),
        places=("desk 1", "drawer 1"),
        located={"book 1": "drawer 1", "desklamp 1": "desk 1"},
    )
    answers = play(task, "go to desk 1", "take desklamp 1 from desk 1", "use desklamp 1")
    assert answers == ["On the desk 1, you see desklamp 1.", NOTHING_HAPPENS, "You turn on the desklamp 1."]
    room = Room(task)
    for action in solve(task):
        assert room.obey(parse_command(action)) != NOTHING_HAPPENS
    assert room.solved()


def test_reward_is_sparse_and_success_ends_the_episode() -> None:
    world = started()
    actions = solve(generate_task("train", TASK.index))
    results = [world.step(action) for action in actions]
    assert [r.reward for r in results] == [0.0] * (len(actions) - 1) + [1.0]
    assert [r.done for r in results] == [False] * (len(actions) - 1) + [True]
    assert results[-1].success
    assert results[-1].score == 1.0
    after = world.step("look")
    assert after.done
    assert after.reward == 0.0


def test_max_turns_ends_the_episode_without_success() -> None:
    world = started(max_turns=3)
    assert [world.step("look").done for _ in range(3)] == [False, False, True]
    assert not world.step("look").success


@pytest.mark.parametrize(
    "action",
    [
        "",
        " ",
        "\n",
        ".",
        "go",
        "go to",
        "go to nowhere 9",
        "take",
        "use",
        "go to ٣ ٣",
        "\x00\x1b[2J",
        "\ud800",
        "x" * 3_000_000,
    ],
)
def test_garbage_does_nothing(action: str) -> None:
    result = started().step(action)
    assert (result.text, result.valid, result.done, result.reward) == (NOTHING_HAPPENS, False, False, 0.0)


@settings(deadline=None, max_examples=200)
@given(st.text())
def test_no_text_is_an_exception(action: str) -> None:
    started().step(action)


@pytest.mark.parametrize("text", ["go to fridge 1", "  Go  to Fridge 1.\n", "GO TO FRIDGE 1"])
def test_case_spaces_and_a_full_stop_do_not_matter(text: str) -> None:
    assert parse_command(text) == Command("go", place="fridge 1")


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.randoms(use_true_random=False), st.sampled_from(["easy", "standard", "hard"]))
def test_admissible_actions_work_and_no_others(index: int, rng: Any, level: str) -> None:
    world = Household(level=level)
    world.reset(Task(environment="household", split="held_out", index=index), seed=0)
    everything: set[str] = set()
    for _ in range(12):
        actions = world.admissible()
        assert len(set(actions)) == len(actions)
        stale = sorted(everything - set(actions))
        if stale:
            assert not world.step(rng.choice(stale)).valid
        everything |= set(actions)
        result = world.step(rng.choice(actions))
        assert result.valid
        if result.done:
            break


def test_admissible_actions_are_told_only_when_asked_for() -> None:
    plain, telling = Household(), Household(admissible=True)
    assert plain.reset(TASK, 0).admissible == ()
    first = telling.reset(TASK, 0)
    assert "look" in first.admissible
    assert telling.step("look").admissible == first.admissible
    assert plain.step("look").admissible == ()
    assert set(first.admissible) == set(plain.admissible())


def test_instructions_explain_the_commands_and_list_them() -> None:
    world = Household(instructions=True)
    text = world.reset(TASK, 0).text
    assert text.index("go to PLACE") < text.index("Your task is to: ") < text.index("You can: look; ")
    assert "You can: " in world.step("look").text
    assert "You can: " not in Household().reset(TASK, 0).text


def test_a_new_episode_begins_afresh() -> None:
    world = Household()
    first = world.reset(TASK, seed=0)
    for action in solve(generate_task("train", TASK.index)):
        world.step(action)
    assert world.reset(TASK, seed=1) == first
    assert not world.step("look").done


def test_no_episode_is_said_plainly() -> None:
    world: Environment = Household()
    with pytest.raises(EnvironmentFailed, match="call reset first"):
        world.step("look")
    world.reset(TASK, 0)
    world.close()
    with pytest.raises(EnvironmentFailed):
        world.step("look")


@pytest.mark.parametrize("options", [{"level": "impossible"}, {"max_turns": -1}, {"admissible": "yes"}])
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=rf"environments\.options: household: .* - at `\$\.{next(iter(options))}`"):
        Household(**options)
