from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.registry import create
from envs.webshop.data import write_data
from envs.webshop.player import Player
from envs.webshop.shop import open_shop
from envs.webshop.synthetic import synthetic_data
from envs.webshop.world import ANY_SEARCH, WebShop
from stream_rl.errors import ConfigError, EnvironmentFailed
from stream_rl.ports import Environment
from stream_rl.types import Split, StepResult, Task


def task(index: int = 0, split: Split = "train") -> Task:
    return Task(environment="webshop", split=split, index=index)


def started(index: int = 0, **options: Any) -> WebShop:
    world = WebShop(**options)
    world.reset(task(index), 0)
    return world


def goal_walk(world: WebShop, index: int) -> list[StepResult]:
    """Buy the product the goal was written for, with its options."""
    goals = open_shop("", 0, 0).goals
    goal = goals[world.num_tasks("held_out") + index]
    results = [world.step(f"search[{goal.product.title}]")]
    while f"click[{goal.product.asin.lower()}]" not in results[-1].admissible:
        results.append(world.step("click[Next >]"))
    results.append(world.step(f"click[{goal.product.asin}]"))
    results += [world.step(f"click[{value}]") for value in goal.options]
    return [*results, world.step("click[Buy Now]")]


def test_every_synthetic_goal_can_be_reached() -> None:
    world: Environment = create("webshop", {})
    assert isinstance(world, WebShop)
    for index in range(world.num_tasks("train")):
        world.reset(task(index), 0)
        *before, last = goal_walk(world, index)
        assert all(result.valid and not result.done and result.reward == 0.0 for result in before)
        assert (last.valid, last.done, last.success) == (True, True, True)
        assert last.reward == last.score == 1.0
        assert last.admissible == ()


def test_the_index_decides_the_goal_and_counts_through_the_split() -> None:
    world = WebShop()
    train, held_out = world.num_tasks("train"), world.num_tasks("held_out")
    texts = [world.reset(task(index), seed).text for index in range(train) for seed in (0, 1)]
    assert texts[::2] == texts[1::2]
    assert world.reset(task(train), 0).text == texts[0]
    tests = {world.reset(task(index, "held_out"), 0).text for index in range(held_out)}
    assert tests.isdisjoint(texts)
    assert train + held_out == len(open_shop("", 0, 0).goals)


def test_both_modes_tell_the_same_page() -> None:
    plain, rich = started(mode="text"), started(mode="rich")
    for action in ("search[serum]", "click[next >]", "click[back to search]"):
        lines = [line.strip() for line in rich.step(action).text.split("\n") if line.strip()]
        told = [line.removeprefix("[button] ").removesuffix(" [button_]") for line in lines]
        assert plain.step(action).text.split(" [SEP] ") == told


def test_admissible_actions_are_accepted() -> None:
    world = WebShop()
    rng = random.Random(0)
    for index in range(30):
        offered = world.reset(task(index), 0).admissible
        assert offered == (ANY_SEARCH,)
        done = False
        for _ in range(15):
            action = rng.choice(offered) if rng.random() < 0.8 else "search[dog bed]"
            result = world.step(action)
            assert result.valid, action
            offered, done = result.admissible, result.done
            if done:
                break
    assert WebShop(admissible=False).reset(task(), 0).admissible == ()


HOSTILE = [
    "x" * 10_000_000,
    "search[" * 1_400_000,
    f"search[{'scarf ' * 1_700_000}]",
    "click[" + "]" * 10_000_000,
    "\x00\x1b[2J\x07",
    "search\x00[red]",
    "click[\udcff]",
    "click[buy now]",
    "click[no such thing]",
    "'; DROP TABLE products; --",
    "",
]


@pytest.mark.parametrize("action", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_actions_do_nothing(action: str) -> None:
    world = WebShop()
    before = world.reset(task(), 0)
    result = world.step(action)
    assert (result.valid, result.reward, result.done, result.success, result.score) == (False, 0.0, False, False, 0.0)
    assert (result.text, result.admissible) == (before.text, before.admissible)


ANY = st.text(max_size=40)


@settings(deadline=None, max_examples=150)
@given(st.lists(st.one_of(ANY, ANY.map(lambda t: f"search[{t}]"), ANY.map(lambda t: f"click[{t}]")), max_size=6))
def test_no_action_raises(actions: list[str]) -> None:
    world = started()
    for action in actions:
        assert world.step(action).reward == 0.0


def test_random_searches_are_the_episodes_seed() -> None:
    world = WebShop()

    def shown(seed: int) -> str:
        world.reset(task(), seed)
        return world.step("search[<r>]").text

    assert "Total results: 50" in shown(0)
    assert shown(0) == shown(0) != shown(1)


def test_after_the_purchase_nothing_happens() -> None:
    world = started()
    bought = goal_walk(world, 0)[-1]
    again = world.step("search[scarf]")
    assert (again.text, again.done, again.success, again.score) == (bought.text, True, True, 1.0)
    assert (again.reward, again.valid) == (0.0, False)


def test_the_turn_limit_ends_the_episode() -> None:
    world = started(max_turns=2)
    assert not world.step("search[scarf]").done
    last = world.step("nonsense")
    assert (last.done, last.success, last.reward, last.admissible) == (True, False, 0.0, ())


def test_a_world_that_was_not_reset_says_so() -> None:
    world = WebShop()
    with pytest.raises(EnvironmentFailed, match="call reset first"):
        world.step("search[x]")
    world.reset(task(), 0)
    world.close()
    with pytest.raises(EnvironmentFailed, match="call reset first"):
        world.admissible()


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "html"},
        {"products": -1},
        {"products": 1},
        {"held_out": 0},
        {"max_turns": -1},
        {"data": "/no/such/folder"},
        {"nouns": "guess"},
        {"seed": "x"},
    ],
)
def test_options_it_cannot_use_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="webshop"):
        WebShop(**options)


def test_synthetic_is_the_made_up_shop() -> None:
    named, unnamed = started(data="synthetic"), started()
    assert named.num_tasks("held_out") == unnamed.num_tasks("held_out") > 0
    assert named.reset(task(3), 0) == unnamed.reset(task(3), 0)


def test_a_users_folder_is_the_catalogue(tmp_path: Path) -> None:
    write_data(synthetic_data(30, seed=5), tmp_path)
    assert WebShop(data=str(tmp_path)).num_tasks("train") > 0
    assert len(open_shop(str(tmp_path), 0, 0).catalogue) == 30
    assert len(open_shop(str(tmp_path), 20, 0).catalogue) == 20


@pytest.mark.parametrize("mode", ["text", "rich"])
def test_the_scripted_player_shops_well(mode: str) -> None:
    world = WebShop(mode=mode, max_turns=15)
    scores = []
    for index in range(60):
        player = Player(world.reset(task(index), 0).text, random.Random(0))
        result = None
        while result is None or not result.done:
            action = player.act()
            result = world.step(action)
            assert result.valid
            player.observe(action, result.text)
        scores.append(result.score)
    assert sum(scores) / len(scores) > 0.8
