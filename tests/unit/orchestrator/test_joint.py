"""A run over two worlds: shares of every round, quotas of every update, numbers by world, a small split."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stream_rl.messages import EvalLease, TrainLease
from stream_rl.observe.rundir import read_json_lines
from stream_rl.orchestrator.fleet import Fleet, ProducerState
from stream_rl.orchestrator.tally import Tally
from stream_rl.types import Trajectory
from tests.unit.orchestrator.test_service import World, _config, _Judge
from tests.unit.records import trajectory

WORLDS = [{"name": "household", "share": 2.0}, {"name": "shop", "share": 1.0}]
THREE = [{"name": "a", "share": 3.0}, {"name": "b", "share": 2.0}, {"name": "c", "share": 1.0}]
TWO_EPISODES = {"household": (1, 3), "shop": (2, 2)}  # turns of member 0 and member 1


def _joint(tmp_path: Path, *, by: Any = None, **over: Any) -> World:
    world = World(_config(environments=WORLDS, **over), tmp_path, judge=by)

    def outcome(lease: TrainLease, member: int) -> Trajectory:
        """The household is won by member 0, in one turn; the shop by nobody, and it understands nothing."""
        name = lease.task.environment
        return trajectory(
            lease.group_id,
            member,
            success=name == "household" and member == 0,
            versions=(world.live["p"],) * TWO_EPISODES[name][member],
            valid_action=name == "household",
            environment=name,
        )

    world.outcome = outcome
    return world


async def test_every_round_holds_the_worlds_by_share_and_is_told_by_world(tmp_path: Path) -> None:
    groups = {"per_update": 3, "candidates": 3}
    world = _joint(tmp_path, groups=groups, algorithm={"selection": "all"}, eval={"every": 0})
    await world.play()
    rounds = [Counter(group.trajectories[0].task.environment for group in world.rounds[k]) for k in range(4)]
    assert rounds == [{"household": 2, "shop": 1}] * 4
    lines = list(read_json_lines(world.run_dir.metrics))
    assert len(lines) == 4
    for line in lines:
        assert line["success"]["by_env"] == {"household": 0.5, "shop": 0.0}
        assert line["by_env"] == {
            "household": {
                "candidate": 2,
                "selected": 2,
                "reward_mean": 0.5,
                "turns_mean": 2.0,
                "invalid_action_share": 0.0,
            },
            "shop": {
                "candidate": 1,
                "selected": 1,
                "reward_mean": 0.0,
                "turns_mean": 2.0,
                "invalid_action_share": 1.0,
            },
        }


async def test_a_discarded_group_is_rolled_again_by_its_own_world_and_shares_stay_exact(tmp_path: Path) -> None:
    """Every first group of the shop breaks, and some that were selected are refused: 2 + 1 in every round still."""
    groups = {"per_update": 3, "candidates": 3, "min_valid": 2}
    world = _joint(tmp_path, groups=groups, algorithm={"selection": "all"}, eval={"every": 0})
    played = world.outcome

    def outcome(lease: TrainLease, member: int) -> Trajectory:
        broken = lease.task.environment == "shop" and "r" not in lease.group_id
        made = played(lease, member)
        return msgspec.structs.replace(made, error="the world broke") if broken else made

    world.outcome = outcome
    world.refuses = lambda group: "stale" if group.update == 2 and "r" not in group.group_id else None
    await world.play()
    rounds = [Counter(group.trajectories[0].task.environment for group in world.rounds[k]) for k in range(4)]
    assert rounds == [{"household": 2, "shop": 1}] * 4
    tickets = [lease for lease in world.leases if "r" not in lease.group_id]
    assert Counter(lease.task.environment for lease in tickets) == {"household": 8, "shop": 4}
    lines = list(read_json_lines(world.run_dir.metrics))
    assert sum(line["groups"]["discarded"].get("too_few_valid", 0) for line in lines) == 4
    assert sum(line["groups"]["discarded"].get("stale", 0) for line in lines) == 2


async def test_rised_gives_every_world_its_place_in_every_update(tmp_path: Path) -> None:
    """Six candidates, four of the household; two are trained, one of each."""
    over = {"judge": {"endpoints": [{"url": "http://judge"}]}, "algorithm": {"selection": "rised"}}
    groups = {"per_update": 2, "candidates": 6}
    world = _joint(tmp_path, by=_Judge(), groups=groups, eval={"every": 0}, **over)
    await world.play()
    lines = list(read_json_lines(world.run_dir.metrics))
    assert len(lines) == 4
    for line in lines:
        assert {name: facts["candidate"] for name, facts in line["by_env"].items()} == {"household": 4, "shop": 2}
        assert {name: facts["selected"] for name, facts in line["by_env"].items()} == {"household": 1, "shop": 1}


async def test_three_worlds_of_unequal_shares_take_turns_and_the_odd_place_goes_round(tmp_path: Path) -> None:
    """Twelve candidates, 6 + 4 + 2 by share; four are trained: one of each world, and one more of each in turn."""
    groups = {"per_update": 4, "candidates": 12}
    over = {"judge": {"endpoints": [{"url": "http://judge"}]}, "algorithm": {"selection": "rised"}}
    config = _config(environments=THREE, groups=groups, updates=6, eval={"every": 0}, **over)
    world = World(config, tmp_path, judge=_Judge())
    await world.play()
    lines = list(read_json_lines(world.run_dir.metrics))
    for line in lines:
        assert {name: facts["candidate"] for name, facts in line["by_env"].items()} == {"a": 6, "b": 4, "c": 2}
    trained = [{name: facts["selected"] for name, facts in line["by_env"].items()} for line in lines]
    first, second, third = {"a": 2, "b": 1, "c": 1}, {"a": 1, "b": 2, "c": 1}, {"a": 1, "b": 1, "c": 2}
    assert trained == [first, second, third] * 2
    assert [lease.task.environment for lease in world.leases[:6]].count("a") == 3
    again = World(config, tmp_path / "again", judge=_Judge())
    await again.play()
    ours, theirs = ({lease.group_id: (lease.task, lease.seed) for lease in w.leases} for w in (world, again))
    assert {key: theirs[key] for key in ours if key in theirs} == {key: ours[key] for key in ours if key in theirs}
    assert len(ours.keys() & theirs.keys()) >= 6 * 12


async def test_every_world_is_leased_with_its_own_limits(tmp_path: Path) -> None:
    worlds = [{"name": "household"}, {"name": "shop", "max_turns": 3, "max_tokens": 40}]
    groups = {"per_update": 2, "candidates": 2}
    generate = {"max_turns": 20, "max_tokens": 8}
    world = World(_config(environments=worlds, groups=groups, generate=generate), tmp_path)
    await world.play()
    expected = {"household": (20, 8), "shop": (3, 40)}
    asked: list[TrainLease | EvalLease] = [*world.leases, *(lease for lease, _ in world.evals)]
    assert {lease.task.environment for lease in world.leases} == set(expected)
    assert {lease.task.environment for lease, _ in world.evals} == set(expected)
    for lease in asked:
        assert (lease.max_turns, lease.max_tokens) == expected[lease.task.environment]


def test_attempts_that_were_made_again_are_counted_with_their_reason_and_tokens() -> None:
    tally = Tally()
    tally.trajectory(trajectory(versions=(0, 0)))  # 2 tokens
    tally.rerolled({"environment_lost": 2}, 30)
    tally.rerolled({}, 0)
    line = tally.line(step=0, candidates=[], trained=[], learner={})
    assert line["rollouts"]["rerolled"] == {"environment_lost": 2}
    assert (line["tokens"]["generated"], line["tokens"]["discarded"]) == (32, 30)
    assert tally.line(step=1, candidates=[], trained=[], learner={})["rollouts"]["rerolled"] == {}


@pytest.mark.parametrize(("counts", "shop_tasks"), [({}, 3), ({"shop": 2}, 2), ({"shop": 500, "household": 500}, 3)])
async def test_each_world_is_validated_on_what_it_has_and_counts_the_same(
    tmp_path: Path, counts: dict[str, int], shop_tasks: int
) -> None:
    world = _joint(tmp_path, updates=2)
    world.num_held_out = counts
    world.eval_success = lambda lease: lease.task.environment == "household"
    await world.play()
    asked = [lease.task for lease, version in world.evals if version == 0]
    assert Counter(task.environment for task in asked) == {"household": 3, "shop": shop_tasks}
    assert len({task.id for task in asked}) == len(asked)
    evaluations = list(read_json_lines(world.run_dir.eval))
    assert [line["step"] for line in evaluations] == [0, 2]
    for line in evaluations:
        assert line["success"] == {"overall": 0.5, "by_env": {"household": 1.0, "shop": 0.0}}
        assert line["tasks"] == 3 + shop_tasks
        assert {name: facts["tasks"] for name, facts in line["by_env"].items()} == {"household": 3, "shop": shop_tasks}


def test_no_more_tasks_are_asked_for_than_every_producer_has() -> None:
    fleet = Fleet()
    for name, capacity, counts in (("p", 1, {"shop": 9, "house": 4}), ("q", 1, {"shop": 7}), ("late", 0, {"shop": 1})):
        fleet.by_peer[name] = ProducerState(peer=name, name=name, capacity=capacity, num_held_out=counts)
    assert fleet.num_held_out == {"shop": 7, "house": 4}
