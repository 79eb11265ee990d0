from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.household.catalogue import KINDS, LAMP, Kind, opens, type_of
from envs.household.language import describe_goal, first_observation, parse_command, parse_goal
from envs.household.room import Room
from envs.household.solver import solve
from envs.household.tasks import LEVELS, combinations, generate_task
from stream_rl.types import Split

SPLITS: tuple[Split, ...] = ("train", "held_out")


@pytest.mark.parametrize("split", SPLITS)
def test_the_scripted_solver_wins_every_task_within_twenty_turns(split: Split) -> None:
    kinds: Counter[Kind] = Counter()
    for index in range(600):
        task = generate_task(split, index)
        room = Room(task)
        actions = solve(task)
        assert len(actions) <= 20
        for action in actions:
            assert not room.solved(), f"{split}/{index} was solved before {action!r}"
            assert room.obey(parse_command(action)) != "Nothing happens."
        assert room.solved(), f"{split}/{index}: {actions}"
        kinds[task.goal.kind] += 1
    assert set(kinds) == set(KINDS)
    assert min(kinds.values()) > 60


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(SPLITS), st.integers(0, 10**9), st.sampled_from(sorted(LEVELS)))
def test_a_task_is_decided_by_split_index_and_level(split: Split, index: int, level: str) -> None:
    task = generate_task(split, index, LEVELS[level])
    assert task == generate_task(split, index, LEVELS[level])
    assert len(task.places) == len(set(task.places)) == LEVELS[level].places
    assert len([thing for thing in task.located if thing != LAMP]) == LEVELS[level].objects
    assert set(task.located.values()) <= set(task.places)
    assert task.goal in combinations(split, task.goal.kind)
    numbers: dict[str, list[int]] = {}
    for place in task.places:
        numbers.setdefault(type_of(place), []).append(int(place.split()[1]))
    assert all(sorted(n) == list(range(1, len(n) + 1)) for n in numbers.values())


@pytest.mark.parametrize("kind", KINDS)
def test_splits_share_no_combination_and_a_fifth_is_held_out(kind: Kind) -> None:
    train, held_out = combinations("train", kind), combinations("held_out", kind)
    assert not set(train) & set(held_out)
    assert 0.2 <= len(held_out) / (len(train) + len(held_out)) < 0.3


def test_seventy_percent_of_objects_lie_where_one_expects_them() -> None:
    usual_food = total = 0
    for index in range(800):
        for thing, place in generate_task("train", index).located.items():
            if type_of(thing) == "lettuce":
                total += 1
                usual_food += type_of(place) in {"fridge", "countertop", "microwave", "garbagecan", "sidetable"}
    # 70 % by intent, some more by chance, some fewer where the room has no such place.
    assert 0.65 < usual_food / total < 0.95


def test_a_goal_can_be_read_back_from_the_first_observation() -> None:
    for kind in KINDS:
        for goal in combinations("train", kind):
            assert parse_goal(first_observation(("desk 1",), goal)) == goal
    with pytest.raises(ValueError, match="no goal in 'hello'"):
        parse_goal("hello")


def test_goals_are_told_in_alfworlds_words() -> None:
    goals = {kind: describe_goal(combinations("train", kind)[0]) for kind in KINDS}
    assert goals["light"].startswith("look at ")
    assert goals["light"].endswith(" under the desklamp")
    assert goals["heat"].startswith("put a hot ")
    assert goals["two"].startswith("put two ")


def test_doors_are_where_one_expects_them() -> None:
    assert opens("fridge 1")
    assert not opens("countertop 2")
