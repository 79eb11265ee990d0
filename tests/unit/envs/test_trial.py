"""A player through many tasks: what is counted."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from envs.players import Player, RandomPlayer, scripted
from envs.pool import WorkerPool
from envs.trial import TrialReport, run_trial
from stream_rl.config import EnvironmentConfig
from stream_rl.errors import UsageError

WORLDS = "tests.unit.envs.worlds:"


class Raises:
    """Three harmless actions, and from then on what makes the world fail."""

    def __init__(self) -> None:
        self._turns = 0

    def act(self, admissible: Sequence[str]) -> str:
        self._turns += 1
        return "a" if self._turns <= 3 else "raise"

    def observe(self, action: str, answer: str) -> None:
        pass


async def trial(world: str, player: Player | None = None, **more: Any) -> TrialReport:
    def make(first: str, rng: random.Random) -> Player:
        return player or RandomPlayer(first, rng)

    fields = {key: more.pop(key) for key in ("options", "workers") if key in more}
    config = EnvironmentConfig(name=world, **fields)
    async with WorkerPool([config], first_backoff_s=0.01) as pool:
        return await run_trial(pool, world, make, **more)


async def test_steps_and_successes_are_counted() -> None:
    report = await trial(WORLDS + "Counter", options={"limit": 3}, tasks=5, parallel=2)
    assert (report.tasks, report.episodes, report.solved, report.steps) == (5, 5, 5, 15)
    assert (report.invalid_share, report.faults, report.restarts) == (0.0, {}, 0)
    assert report.steps_per_s == pytest.approx(15 / report.seconds)
    assert report.memory_mib is not None
    assert 0 < report.memory_mib.start <= report.memory_mib.peak
    assert report.flawless


async def test_the_turn_limit_ends_an_episode_unsolved() -> None:
    report = await trial(WORLDS + "Counter", options={"limit": 3}, tasks=2, max_turns=2)
    assert (report.episodes, report.solved, report.steps) == (2, 0, 4)


async def test_no_more_tasks_than_the_world_has() -> None:
    report = await trial(WORLDS + "Counted", tasks=50, split="held_out", max_turns=1)
    assert (report.tasks, report.episodes) == (3, 3)


async def test_faults_are_told_by_cause_and_cost_their_episode_only() -> None:
    report = await trial(WORLDS + "Counter", Raises(), tasks=3, parallel=1)
    (cause,) = report.faults
    assert "the roof fell in" in cause
    assert report.faults[cause] == 2  # one player for all three: the first episode takes its three steps
    assert (report.episodes, report.steps) == (1, 3)
    assert not report.flawless


async def test_a_random_player_is_understood_where_actions_are_told() -> None:
    report = await trial("household", options={"admissible": True}, tasks=4, max_turns=10)
    assert report.invalid_share == 0.0
    assert report.steps == 40


async def test_scripted_players_solve_their_worlds() -> None:
    make = scripted("household")
    async with WorkerPool([EnvironmentConfig(name="household")]) as pool:
        report = await run_trial(pool, "household", make, tasks=5)
    assert report.solved == 5
    assert report.score_mean == 1.0
    with pytest.raises(UsageError, match="remote has no scripted player"):
        scripted("remote")


def test_a_random_player_draws_from_what_it_is_told_or_has_read() -> None:
    player = RandomPlayer("You see cabinet 1.", random.Random(0))
    assert {player.act(["a", "b"]) for _ in range(30)} == {"a", "b"}
    player.observe("look", "A red apple.")
    words = {word for _ in range(200) for word in player.act(()).replace("cabinet 1", "cabinet_1").split()}
    assert words == {"You", "see", "cabinet_1", "A", "red", "apple"}
