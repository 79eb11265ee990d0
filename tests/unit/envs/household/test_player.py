from __future__ import annotations

import random
from collections.abc import Collection

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.household.belief import Belief
from envs.household.language import parse_command
from envs.household.player import CORE_RUBRICS, Player
from envs.household.room import Room
from envs.household.tasks import generate_task
from envs.household.world import Household
from stream_rl.types import Split, Task


def play(index: int, *, noise: float, heeds: Collection[str] = (), split: Split = "train", seed: int = 0) -> list[str]:
    """Actions of one episode of at most 20 turns; the last one is "won" if the goal was reached."""
    world = Household(max_turns=20)
    first = world.reset(Task(environment="household", split=split, index=index), seed=0)
    player = Player(first.text, random.Random(f"{seed}/{index}"), noise=noise, heeds=heeds)
    actions = []
    while True:
        action = player.act()
        result = world.step(action)
        player.observe(action, result.text)
        actions.append(action if result.valid else f"! {action}")
        if result.done:
            return [*actions, "won"] if result.success else actions


def success(*, noise: float, heeds: Collection[str] = ()) -> float:
    return sum(play(i, noise=noise, heeds=heeds)[-1] == "won" for i in range(300)) / 300


@pytest.mark.parametrize("split", ["train", "held_out"])
def test_without_noise_it_nearly_always_wins_and_never_fails_an_action(split: Split) -> None:
    episodes = [play(i, noise=0.0, split=split) for i in range(200)]
    assert sum(e[-1] == "won" for e in episodes) >= 190
    assert not any(action.startswith("!") for e in episodes for action in e)


def test_noise_lowers_success_and_advice_restores_it() -> None:
    none, half, everything = (success(noise=0.5, heeds=CORE_RUBRICS[:n]) for n in (0, 4, 8))
    assert none + 0.1 < half < everything
    assert everything > 0.9


def test_the_same_seed_plays_the_same_episode() -> None:
    assert play(5, noise=0.5, seed=1) == play(5, noise=0.5, seed=1)


def seen_errors(rubric: str, heeds: Collection[str]) -> int:
    """How often 200 noisy episodes show the error of one rubric, read from the actions alone."""
    count = 0
    for index in range(200):
        actions = play(index, noise=0.6, heeds=heeds)
        match rubric:
            case "precision.valid_actions":
                count += sum(a.startswith("!") for a in actions)
            case "efficiency.keep_open":
                count += sum(a.startswith("close") for a in actions)
            case "efficiency.no_idle_looks":
                count += sum(a.split()[0] in {"look", "inventory", "examine"} for a in actions)
            case "focus.needed_objects":
                wanted = generate_task("train", index).goal.object
                count += sum(a.startswith("take ") and a.split()[1] != wanted for a in actions)
    return count


@pytest.mark.parametrize(
    "rubric",
    ["precision.valid_actions", "efficiency.keep_open", "efficiency.no_idle_looks", "focus.needed_objects"],
)
def test_each_piece_of_advice_removes_its_error(rubric: str) -> None:
    assert seen_errors(rubric, heeds=()) > 20
    assert seen_errors(rubric, heeds=[rubric]) == 0


def doors_passed(heeds: Collection[str]) -> int:
    """How often 200 noisy episodes walk from a closed place, empty-handed, without ever having opened it."""
    count = 0
    for index in range(200):
        world = Household(max_turns=20)
        first = world.reset(Task(environment="household", split="train", index=index), seed=0)
        player = Player(first.text, random.Random(index), noise=0.6, heeds=heeds)
        while True:
            b = player.belief
            at_door = bool(b.at and not b.holding and not b.wanted() and b.closed(b.at) and b.at not in b.contents)
            action = player.act()
            count += at_door and action.startswith("go to ") and action != f"go to {b.at}"
            result = world.step(action)
            player.observe(action, result.text)
            if result.done:
                break
    return count


def test_told_to_open_closed_places_it_never_leaves_one_closed() -> None:
    assert doors_passed(()) > 50
    assert doors_passed(["exploration.open_closed"]) == 0


@settings(deadline=None, max_examples=80)
@given(st.integers(0, 10**6), st.floats(0, 1))
def test_what_it_believes_is_what_is_there(index: int, noise: float) -> None:
    task = generate_task("train", index)
    room = Room(task)
    world = Household()
    first = world.reset(Task(environment="household", split="train", index=index), seed=0)
    player = Player(first.text, random.Random(index), noise=noise)
    assert player.belief.places == task.places
    assert player.belief.goal == task.goal
    for _ in range(20):
        action = player.act()
        result = world.step(action)
        player.observe(action, result.text)
        room.obey(parse_command(action))
        assert player.belief.at == room.at
        assert player.belief.holding == room.holding
        assert player.belief.open == room.open
        assert player.belief.processed == room.processed
        for place, things in player.belief.contents.items():
            assert room.contents[place] == things
        if result.done:
            break


def test_a_text_without_places_is_refused() -> None:
    with pytest.raises(ValueError, match="no list of places"):
        Belief("Once upon a time.")
