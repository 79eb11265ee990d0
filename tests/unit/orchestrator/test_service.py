"""The orchestrator with scripted roles over in-memory links: real ledger, real protocol, no model."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from stream_rl.config import Config, from_dict
from stream_rl.errors import RoleDied
from stream_rl.link.codec import Decoder
from stream_rl.link.memory import MemoryHub, open_memory_hub
from stream_rl.messages import (
    CheckpointSaved,
    EvalLease,
    Finish,
    GroupClosed,
    GroupRefused,
    LearnerReady,
    ProducerReady,
    Published,
    RoundStart,
    SaveCheckpoint,
    SelectedGroup,
    ToLearner,
    ToProducer,
    Trained,
    TrainLease,
    TrajectoryDone,
    UpdateWeights,
    WeightsLive,
)
from stream_rl.observe.rundir import RunDirectory, read_json_lines
from stream_rl.orchestrator.flight import Flight
from stream_rl.orchestrator.judging import Question
from stream_rl.orchestrator.ledger import Ledger
from stream_rl.orchestrator.service import Orchestrator
from stream_rl.rubrics.vocabulary import builtin
from stream_rl.types import Tag, Trajectory, UpdateReport, Verdict, WeightsManifest, Writing
from tests.unit.records import row, trajectory


def _config(**over: Any) -> Config:
    tree: dict[str, Any] = {
        "updates": 4,
        "async_depth": 2,
        "groups": {"per_update": 2, "candidates": 3, "size": 2, "deadline_s": 10.0},
        "algorithm": {"selection": "random"},
        "eval": {"every": 2, "tasks": 3, "rollouts": 1},
        "stall_s": 20.0,
    }
    for key, value in over.items():
        tree[key] = {**tree[key], **value} if isinstance(value, dict) and key in tree else value
    return from_dict(tree)


def _manifest(version: int) -> WeightsManifest:
    return WeightsManifest(run_id="r", version=version, path=f"v{version}", fingerprint=f"f{version}", num_bytes=1)


class World:
    """Everything around the orchestrator, scripted."""

    def __init__(self, config: Config, tmp_path: Path, *, version: int = 0, judge: Any = None) -> None:
        root = tmp_path / "run"
        self.config = config
        self.run_dir = RunDirectory(root) if (root / "run_id").exists() else RunDirectory.create(root)
        self.ledger = Ledger(self.run_dir.ledger, self.run_dir.run_id)
        if version:
            self.ledger.rewind(version, 0.0)
        self.version = version
        self.judge = judge
        self.stop = anyio.Event()
        self.events: list[dict[str, Any]] = []
        self.leases: list[TrainLease] = []
        self.evals: list[tuple[EvalLease, int]] = []
        self.rounds: dict[int, list[SelectedGroup]] = {}
        self.finished: list[str] = []
        self.capacity = 8
        self.num_held_out: dict[str, int] = {}
        self.eval_success: Callable[[EvalLease], bool] = lambda lease: True
        self.first_update_s = 0.0  # how long the learner takes over its first round
        self.slow_until = 0  # an update to an older version takes until this one is published
        self.published = anyio.Event()
        self.loaded: list[int] = []
        self.outcome: Callable[[TrainLease, int], Trajectory] = self._outcome
        self.before_lease: Callable[[str, TrainLease], bool] = lambda name, lease: True
        self.written: Callable[[TrainLease], Writing | None] = lambda lease: None
        self.judges: Any = None
        self.controls: list[Callable[[MemoryHub], Any]] = []  # people who talk to the run while it goes on
        self.on_eval: Callable[[EvalLease], None] = lambda lease: None
        self.on_trained: Callable[[int], None] = lambda update: None
        self.refuses: Callable[[SelectedGroup], str | None] = lambda group: None  # what the learner finds wrong
        self.probe: Callable[[str, int], tuple[float, ...]] = lambda name, version: ()
        self.rng = random.Random(0)

    def _outcome(self, lease: TrainLease, member: int) -> Trajectory:
        success = self.rng.random() < 0.5
        name = lease.task.environment
        return trajectory(lease.group_id, member, success=success, versions=(self.live["p"],) * 2, environment=name)

    async def play(self, producers: tuple[str, ...] = ("p",)) -> Orchestrator:
        self.live: dict[str, int] = dict.fromkeys(producers, self.version)
        async with open_memory_hub() as hub, anyio.create_task_group() as tasks:
            service = Orchestrator(
                config=self.config,
                run=self.run_dir,
                hub=hub,
                ledger=self.ledger,
                judge=self.judge,
                judge_workers=2,
                judges=self.judges,
                vocabulary=builtin(),
                board=self.events.append,
                version=self.version,
            )
            for name in producers:
                tasks.start_soon(self._producer, hub, name)
            tasks.start_soon(self._learner, hub)
            for control in self.controls:
                tasks.start_soon(control, hub)
            with anyio.fail_after(25):
                await service.run(self.stop)
            tasks.cancel_scope.cancel()
        return service

    async def _producer(self, hub: MemoryHub, name: str) -> None:
        receive: Decoder[ToProducer] = Decoder(ToProducer)
        async with hub.connect(role="producer", name=name, receive=receive) as link:
            ready = ProducerReady(
                engine="scripted", version=self.live[name], capacity=self.capacity, num_held_out=self.num_held_out
            )
            await link.send(ready)
            async for delivery in link:
                match delivery.message:
                    case TrainLease() as lease:
                        self.leases.append(lease)
                        if not self.before_lease(name, lease):
                            return  # dies with the lease in hand
                        for member in range(lease.size):
                            await link.send(TrajectoryDone(trajectory=self.outcome(lease, member)))
                        await link.send(GroupClosed(group_id=lease.group_id, written=self.written(lease)))
                    case EvalLease() as lease:
                        self.evals.append((lease, self.live[name]))
                        self.on_eval(lease)
                        t = trajectory(
                            lease.group_id,
                            0,
                            success=self.eval_success(lease),
                            versions=(self.live[name],),
                            split="held_out",
                            environment=lease.task.environment,
                        )
                        await link.send(TrajectoryDone(trajectory=t, purpose="eval"))
                        await link.send(GroupClosed(group_id=lease.group_id))
                    case UpdateWeights(manifest=manifest):
                        if manifest.version < self.slow_until:
                            await self.published.wait()
                        self.live[name] = manifest.version
                        self.loaded.append(manifest.version)
                        report = UpdateReport(
                            version=manifest.version,
                            fingerprint=manifest.fingerprint,
                            pause_s=0.0,
                            load_s=0.0,
                            probe=self.probe(name, manifest.version),
                        )
                        await link.send(WeightsLive(report=report))
                    case Finish():
                        self.finished.append(name)
                        return
                delivery.ack()

    async def _learner(self, hub: MemoryHub) -> None:
        receive: Decoder[ToLearner] = Decoder(ToLearner)
        async with hub.connect(role="learner", name="learner", receive=receive) as link:
            version = self.version
            await link.send(LearnerReady(version=version, manifest=_manifest(version)))
            expected = 0
            async for delivery in link:
                match delivery.message:
                    case RoundStart() as start:
                        assert start.update == version
                        expected = start.num_groups
                        self.rounds[version] = []
                    case SelectedGroup() as group:
                        if reason := self.refuses(group):
                            refusal = GroupRefused(update=version, group_id=group.group_id, reason=reason)
                            await link.send(refusal)
                            delivery.ack()
                            continue
                        self.rounds[version].append(group)
                        if len(self.rounds[version]) == expected:
                            trained = Trained(
                                update=version,
                                version=version + 1,
                                group_ids=tuple(g.group_id for g in self.rounds[version]),
                                metrics={"loss": 0.1, "learner": {"rollout_wait_s": 0.1, "total_s": 0.1}},
                            )
                            if version == self.version:
                                await anyio.sleep(self.first_update_s)
                            self.on_trained(version)
                            version += 1
                            await link.send(trained)
                            await link.send(Published(manifest=_manifest(version), write_s=0.0))
                            if version == self.slow_until:
                                self.published.set()
                    case SaveCheckpoint():
                        await link.send(CheckpointSaved(version=version, path=f"checkpoints/{version:06d}"))
                    case Finish():
                        self.finished.append("learner")
                        return
                delivery.ack()


def _lags(world: World) -> list[int]:
    return [
        group.update - span.version
        for groups in world.rounds.values()
        for group in groups
        for t in group.trajectories
        for turn in t.turns
        for span in turn.spans
    ]


async def test_a_run_trains_every_round_evaluates_and_ends_in_order(tmp_path: Path) -> None:
    world = World(_config(), tmp_path)
    await world.play()
    assert {k: len(groups) for k, groups in world.rounds.items()} == {0: 2, 1: 2, 2: 2, 3: 2}
    assert max(_lags(world)) <= 2
    lines = list(read_json_lines(world.run_dir.metrics))
    assert [line["step"] for line in lines] == [0, 1, 2, 3]
    groups = {"candidate": 3, "selected": 2, "discarded": {"not_selected": 1}, "deferred": 0}
    assert all(line["groups"] == groups for line in lines)
    assert [e["step"] for e in read_json_lines(world.run_dir.eval)] == [0, 2, 4]
    assert sorted(world.finished) == ["learner", "p"]
    counts = Ledger(world.run_dir.ledger, world.run_dir.run_id).counts()
    assert counts == {"trained": 8, "discarded:not_selected": 4}


@pytest.mark.parametrize("depth", [0, 1, 2])
async def test_no_token_is_older_than_the_depth_allows(tmp_path: Path, depth: int) -> None:
    world = World(_config(async_depth=depth, updates=6), tmp_path)
    await world.play()
    assert max(_lags(world)) <= depth
    lines = list(read_json_lines(world.run_dir.metrics))
    assert max(line["lag"]["max"] for line in lines) == max(_lags(world))


class Straggling(World):
    """The first group's rollouts end when the learner has trained some updates; all others at once."""

    hold_until = 0  # updates

    async def _producer(self, hub: MemoryHub, name: str) -> None:
        receive: Decoder[ToProducer] = Decoder(ToProducer)
        enough = anyio.Event()
        self.on_trained = lambda update: enough.set() if update + 1 == self.hold_until else None
        async with hub.connect(role="producer", name=name, receive=receive) as link, anyio.create_task_group() as held:
            await link.send(ProducerReady(engine="scripted", version=0, capacity=64, num_held_out={}))

            async def roll_out(lease: TrainLease, version: int) -> None:
                if lease.group_id == "g000000":
                    await enough.wait()
                for member in range(lease.size):
                    made = trajectory(lease.group_id, member, versions=(version,))
                    await link.send(TrajectoryDone(trajectory=made))
                await link.send(GroupClosed(group_id=lease.group_id))

            async for delivery in link:
                match delivery.message:
                    case TrainLease() as lease:
                        held.start_soon(roll_out, lease, self.live[name])
                    case UpdateWeights(manifest=manifest):
                        self.live[name] = manifest.version
                        report = UpdateReport(version=manifest.version, fingerprint="f", pause_s=0.0, load_s=0.0)
                        await link.send(WeightsLive(report=report))
                    case Finish():
                        delivery.ack()
                        return
                delivery.ack()


def _windowed(**over: Any) -> Config:
    return _config(
        updates=6,
        async_depth=2,
        groups={"per_update": 3, "candidates": 3, **over},
        algorithm={"selection": "all"},
        eval={"every": 0},
    )


async def test_within_a_window_a_straggler_makes_way_and_is_trained_later(tmp_path: Path) -> None:
    """Ready after update 2, admitted to round 0 and deferred twice: trained by round 2, at a lag of 2."""
    world = Straggling(_windowed(window=3), tmp_path)
    world.hold_until = 2
    await world.play()
    assert [k for k in world.rounds if "g000000" in _trained(world, k)] == [2]
    assert {k: len(groups) for k, groups in world.rounds.items()} == dict.fromkeys(range(6), 3)
    lines = list(read_json_lines(world.run_dir.metrics))
    assert [line["groups"]["deferred"] for line in lines] == [1, 1, 0, 0, 0, 0]
    assert lines[2]["lag"]["max"] == 2
    everything = [g.group_id for groups in world.rounds.values() for g in groups]
    assert len(everything) == len(set(everything)) == 18


async def test_past_the_window_the_round_waits_for_its_straggler(tmp_path: Path) -> None:
    """Deferred once, it has to be trained by round 1; it waits for update 2 here, and round 1 waits for it."""
    world = Straggling(_windowed(window=2), tmp_path)
    world.hold_until = 2
    with anyio.move_on_after(1.5) as scope:
        await world.play()
    assert scope.cancelled_caught
    assert {k: len(groups) for k, groups in world.rounds.items()} == {0: 3, 1: 2}


def _trained(world: World, update: int) -> set[str]:
    return {group.group_id for group in world.rounds[update]}


async def test_a_generator_that_skips_versions_ends_several_rounds_at_once(tmp_path: Path) -> None:
    """The generator takes so long for version 1 that the learner publishes 3 meanwhile: 2 is never loaded."""
    world = World(_config(eval={"every": 0}, updates=6), tmp_path)
    world.slow_until = 3
    world.capacity = 64
    await world.play()
    assert sorted(world.rounds) == list(range(6))
    assert max(_lags(world)) <= 2
    assert 2 not in world.loaded
    assert world.loaded[:2] == [1, 3]


async def test_nothing_is_generated_or_trained_beside_an_evaluation(tmp_path: Path) -> None:
    """Between the first and the last evaluation lease of a version there is no training lease and no round."""
    world = World(_config(async_depth=2, updates=6), tmp_path)
    log: list[str] = []

    def before_lease(name: str, lease: TrainLease) -> bool:
        log.append("train")
        return True

    world.before_lease = before_lease
    world.on_eval = lambda lease: log.append(f"eval {lease.group_id[:10]}")
    world.on_trained = lambda update: log.append("round")
    await world.play()
    for version in (2, 4):
        places = [i for i, entry in enumerate(log) if entry == f"eval eval-{version:05d}"]
        assert len(places) == 3
        assert set(log[places[0] : places[-1] + 1]) == {f"eval eval-{version:05d}"}


async def test_evaluation_sees_one_version_and_no_guidance(tmp_path: Path) -> None:
    world = World(_config(), tmp_path)
    await world.play()
    assert [version for _, version in world.evals] == [0] * 3 + [2] * 3 + [4] * 3
    assert not any("guidance" in lease.__struct_fields__ for lease, _ in world.evals)
    assert {lease.task.split for lease, _ in world.evals} == {"held_out"}
    tasks = [lease.task.id for lease, _ in world.evals]
    assert tasks[:3] == tasks[3:6] == tasks[6:]


async def test_a_group_with_too_few_valid_members_is_discarded_and_refilled(tmp_path: Path) -> None:
    world = World(_config(groups={"min_valid": 2}), tmp_path)
    failed: set[str] = set()

    def outcome(lease: TrainLease, member: int) -> Trajectory:
        if len(failed) < 3 and member == 0:
            failed.add(lease.group_id)
            return trajectory(lease.group_id, 0, error="the world broke")
        return trajectory(lease.group_id, member, versions=(world.live["p"],))

    world.outcome = outcome
    await world.play()
    assert all(len(groups) == 2 for groups in world.rounds.values())
    trained = {g.group_id for groups in world.rounds.values() for g in groups}
    assert not trained & failed
    lines = list(read_json_lines(world.run_dir.metrics))
    assert sum(line["groups"]["discarded"].get("too_few_valid", 0) for line in lines) == 3
    assert all(line["groups"]["candidate"] == 3 for line in lines)


async def test_a_discarded_group_is_rolled_again_with_another_seed_then_another_task_of_its_world(
    tmp_path: Path,
) -> None:
    """The world cannot play the third task at all: its place is given to another task, and no group is short."""
    world = World(_config(groups={"min_valid": 2}, eval={"every": 0}), tmp_path)

    def outcome(lease: TrainLease, member: int) -> Trajectory:
        error = "no such game" if lease.task.index == 2 else None
        return trajectory(lease.group_id, member, versions=(world.live["p"],), error=error)

    world.outcome = outcome
    await world.play()
    third = [lease for lease in world.leases if lease.group_id.startswith("g000002")]
    assert [(lease.group_id, lease.task.index) for lease in third] == [
        ("g000002", 2),
        ("g000002r1", 2),
        ("g000002r2", 500_002),
    ]
    assert len({lease.seed for lease in third}) == 3
    given_up = [event for event in world.events if event["type"] == "task_given_up"]
    assert [(e["task"], e["instead"]) for e in given_up] == [("household/train/2", "household/train/500002")]
    indices = [lease.task.index for lease in world.leases if "r" not in lease.group_id]
    assert indices == list(range(4 * 3))  # the order itself has no gap, and no more than its 12 places were taken
    assert {k: len(groups) for k, groups in world.rounds.items()} == dict.fromkeys(range(4), 2)


@pytest.mark.parametrize("selection", ["random", "all"])
async def test_what_the_learner_refuses_is_rolled_again_and_every_update_is_whole(
    tmp_path: Path, selection: str
) -> None:
    groups = {"per_update": 2, "candidates": 2 if selection == "all" else 3}
    config = _config(groups=groups, algorithm={"selection": selection}, eval={"every": 0})
    world = World(config, tmp_path)
    refused: list[SelectedGroup] = []

    def refuses(group: SelectedGroup) -> str | None:
        if group.update in (1, 3) and len(refused) < group.update:
            refused.append(group)
            return "stale: lag 9"
        return None

    world.refuses = refuses
    await world.play()
    assert [group.update for group in refused] == [1, 3, 3]
    assert {k: len(trained) for k, trained in world.rounds.items()} == dict.fromkeys(range(4), 2)
    for group in refused:
        assert f"{group.group_id}r1" in _trained(world, group.update)  # in its own round, the last one included
    assert max(_lags(world)) <= 2
    lines = list(read_json_lines(world.run_dir.metrics))
    assert [line["groups"]["discarded"].get("stale: lag 9", 0) for line in lines] == [0, 1, 0, 2]
    assert [(line["groups"]["candidate"], line["groups"]["selected"]) for line in lines] == [
        (groups["candidates"], 2)
    ] * 4
    counts = Ledger(world.run_dir.ledger, world.run_dir.run_id).counts()
    assert (counts["trained"], counts["discarded:stale: lag 9"]) == (8, 3)


async def test_a_learner_that_refuses_without_end_ends_the_run_with_the_reason(tmp_path: Path) -> None:
    world = World(_config(), tmp_path)
    world.refuses = lambda group: "no valid member sampled a token" if group.update == 1 else None
    with pytest.RaisesGroup(
        pytest.RaisesExc(RoleDied, match="the learner refused 12 groups .* no valid member sampled a token"),
        flatten_subgroups=True,
    ):
        await world.play()


async def test_an_endless_row_of_failures_ends_the_run_with_the_reason(tmp_path: Path) -> None:
    world = World(_config(), tmp_path)
    world.outcome = lambda lease, member: trajectory(lease.group_id, member, error="no such game")
    with pytest.RaisesGroup(
        pytest.RaisesExc(RoleDied, match="12 groups in a row.*no such game"), flatten_subgroups=True
    ):
        await world.play()


async def test_a_lost_producers_leases_go_to_another_and_nothing_is_trained_twice(tmp_path: Path) -> None:
    world = World(_config(), tmp_path)
    taken: list[str] = []

    def before_lease(name: str, lease: TrainLease) -> bool:
        if name == "q" and len(taken) < 1:
            taken.append(lease.group_id)
            return False
        return True

    world.before_lease = before_lease
    world.outcome = lambda lease, member: trajectory(lease.group_id, member, versions=(min(world.live.values()),))
    world.live = {}
    original = world._producer

    async def producer(hub: MemoryHub, name: str) -> None:
        await original(hub, name)
        if name == "q":
            world.live.pop("q", None)

    world._producer = producer  # type: ignore[method-assign]
    await world.play(("p", "q"))
    assert taken
    assert Counter(lease.group_id for lease in world.leases)[taken[0]] == 2
    trained = [g.group_id for groups in world.rounds.values() for g in groups]
    assert len(trained) == len(set(trained)) == 8


async def test_stop_saves_a_checkpoint_and_resume_goes_on_without_gap_or_duplicate(tmp_path: Path) -> None:
    first = World(_config(), tmp_path)
    first.on_trained = lambda update: first.stop.set() if update == 1 else None
    await first.play()
    assert "learner" in first.finished
    saved = [e for e in first.events if e["type"] == "checkpoint"]
    version = saved[-1]["version"]
    assert version in (2, 3)
    second = World(_config(), tmp_path, version=version)
    await second.play()
    assert sorted(second.rounds) == list(range(version, 4))
    trained = [g.group_id for w in (first, second) for groups in w.rounds.values() for g in groups]
    assert len(trained) == len(set(trained)) == 8
    lines = list(read_json_lines(second.run_dir.metrics))
    assert [line["step"] for line in lines] == [0, 1, 2, 3]


async def test_after_a_crash_selected_rounds_are_delivered_again_unchanged(tmp_path: Path) -> None:
    """The checkpoint is of version 1; rounds 1 to 3 were trained after it and are lost with the learner."""
    first = World(_config(), tmp_path)
    await first.play()
    second = World(_config(), tmp_path, version=1)
    await second.play()
    for update in (1, 2, 3):
        before, after = first.rounds[update], second.rounds[update]
        assert sorted(g.group_id for g in before) == sorted(g.group_id for g in after)
        assert {g.group_id: [t.id for t in g.trajectories] for g in before} == {
            g.group_id: [t.id for t in g.trajectories] for g in after
        }
    assert not second.leases


async def test_a_group_of_a_round_that_is_not_open_yet_waits_after_a_fall_back(tmp_path: Path) -> None:
    """A lease of round 2 was in flight when everything died at version 0: leased at once it would be too old."""
    world = World(_config(async_depth=0, updates=3, eval={"every": 0}), tmp_path)
    world.ledger.lease(row("g000000", round_=2, position=0), 0.0)
    await world.play()
    assert [lease.group_id for lease in world.leases].count("g000000") == 1
    assert [lease.group_id for lease in world.leases].index("g000000") >= 6  # rounds 0 and 1 came first
    assert max(_lags(world)) == 0
    assert Ledger(world.run_dir.ledger, world.run_dir.run_id).counts()["trained"] == 6


async def test_a_run_that_was_made_shorter_drops_what_lies_past_its_end(tmp_path: Path) -> None:
    world = World(_config(updates=2, eval={"every": 0}), tmp_path)
    world.ledger.lease(row("g000000", round_=3, position=0), 0.0)
    await world.play()
    assert sorted(world.rounds) == [0, 1]
    assert Ledger(world.run_dir.ledger, world.run_dir.run_id).counts()["discarded:past_the_end"] == 1


async def test_a_run_that_is_made_longer_again_rolls_what_it_dropped(tmp_path: Path) -> None:
    """Round 3 was dropped with a group of the second place in it: the re-roll of just that place fills it."""
    shorter = World(_config(updates=2, eval={"every": 0}), tmp_path)
    shorter.ledger.lease(row("g000000", round_=0, position=0), 0.0)
    shorter.ledger.lease(row("g000001", round_=3, position=1), 0.0)
    await shorter.play()
    longer = World(_config(updates=4, eval={"every": 0}), tmp_path, version=2)
    await longer.play()
    (again,) = (lease for lease in longer.leases if "r" in lease.group_id)
    assert (again.group_id, again.task.index) == ("g000001r1", 1)
    (found,) = (r for r in Ledger(longer.run_dir.ledger, longer.run_dir.run_id).groups(from_round=3)
                if r.group_id == "g000001r1")  # fmt: skip
    assert (found.admitted, found.reroll_of) == (3, "g000001")
    assert {k: len(groups) for k, groups in longer.rounds.items()} == {2: 2, 3: 2}


async def test_a_run_goes_on_from_a_ledger_that_kept_no_debts(tmp_path: Path) -> None:
    """g000001 was discarded under an earlier release: the next task of the order takes its place, as it did there."""
    before = World(_config(eval={"every": 0}), tmp_path)
    for position in range(2):
        before.ledger.lease(row(f"g{position:06d}", position=position), 0.0)
    before.ledger.discard("g000001", "too_few_valid", 0.0)
    before.ledger.close()
    with closing(sqlite3.connect(before.run_dir.ledger)) as db:
        db.execute("DROP INDEX groups_by_reroll")
        for column in ("reroll_of", "reroll", "owed"):
            db.execute(f"ALTER TABLE groups DROP COLUMN {column}")
    world = World(_config(eval={"every": 0}), tmp_path)
    await world.play()
    assert sorted(lease.group_id for lease in world.leases) == [f"g{i:06d}" for i in (0, *range(2, 13))]
    assert {k: len(groups) for k, groups in world.rounds.items()} == dict.fromkeys(range(4), 2)


async def test_the_last_evaluation_is_made_up_for_after_a_resume(tmp_path: Path) -> None:
    first = World(_config(eval={"every": 0}), tmp_path)
    await first.play()
    second = World(_config(), tmp_path, version=4)
    await second.play()
    assert [version for _, version in second.evals] == [4] * 3
    assert sorted(second.finished) == ["learner", "p"]


async def test_a_run_stopped_before_its_last_evaluation_is_not_complete(tmp_path: Path) -> None:
    world = World(_config(), tmp_path)
    world.on_trained = lambda update: world.stop.set() if update == 3 else None
    await world.play()
    assert sorted(world.rounds) == [0, 1, 2, 3]  # every update was trained
    assert [e["step"] for e in read_json_lines(world.run_dir.eval)] == [0, 2]
    (end,) = [event for event in world.events if event["type"] == "finished"]
    assert end["complete"] is False


@pytest.mark.parametrize(("buffer", "leased"), [(3, 7), (0, 9)])
async def test_a_full_buffer_stops_later_rounds_but_never_the_next_one(
    tmp_path: Path, buffer: int, leased: int
) -> None:
    """C = 3, P = 2, S = 2, groups one at a time, a learner that takes long over round 0.

    Buffer 3: round 0 (3 leases), round 1 (3; selection leaves 2 of them waiting), and 1 of round 2 fill it: 7.
    Without a limit all (2 + 1) * 3 = 9 permits are used. Either way every round is trained.
    """
    world = World(_config(groups={"buffer": buffer}, eval={"every": 0}, updates=5), tmp_path)
    world.capacity = 2
    world.first_update_s = 0.5
    seen: list[int] = []
    world.on_trained = lambda update: seen.append(len(world.leases))
    await world.play()
    assert seen[0] == leased
    assert sorted(world.rounds) == list(range(5))


async def test_a_verdict_on_a_dropped_rollout_is_not_taken_for_its_successor(tmp_path: Path) -> None:
    world = World(_config(), tmp_path)
    service = await world.play()
    production = service._production
    flight = Flight(row=row("g9"), stage="produced")
    old, new = trajectory("g9", 0), trajectory("g9", 0)
    flight.trajectories[new.id] = new
    service._state.flights["g9"] = flight
    await production.take_answer(Question(trajectory=old), Verdict(trajectory_id=old.id, tags=(), endpoint="e"))
    assert flight.verdicts == {}


class _Judge:
    """Tags what it is told to; None means that no endpoint answers."""

    def __init__(self) -> None:
        self.down = 0
        self.asked = 0

    async def tag(self, t: Trajectory) -> Verdict:
        self.asked += 1
        if self.asked <= self.down:
            tags = tuple(Tag(rubric=r, value="abstained") for r in builtin().ids)
            return Verdict(trajectory_id=t.id, tags=tags)
        first = builtin().ids[0]
        tags = tuple(Tag(rubric=r, value="violation" if r == first else "not_applicable") for r in builtin().ids)
        return Verdict(trajectory_id=t.id, tags=tags, endpoint="http://judge", prompt_tokens=10, completion_tokens=5)


async def test_a_silent_judge_is_waited_for_and_reported(tmp_path: Path) -> None:
    judge = _Judge()
    judge.down = 2
    world = World(_config(judge={"endpoints": [{"url": "http://judge"}]}, updates=2), tmp_path, judge=judge)
    await world.play()
    troubles = [e["problem"] for e in world.events if e["type"] == "judge"]
    assert troubles[0] is not None
    assert troubles[-1] is None
    assert sorted(world.rounds) == [0, 1]
    lines = list(read_json_lines(world.run_dir.metrics))
    assert sum(line["tokens"]["judge"] for line in lines) > 0


async def test_dominant_violations_steer_later_training_rollouts_only(tmp_path: Path) -> None:
    over = {
        "judge": {"endpoints": [{"url": "http://judge"}]},
        "algorithm": {"steering": True, "selection": "random"},
        "async_depth": 0,
    }
    world = World(_config(**over), tmp_path, judge=_Judge())
    await world.play()
    assert world.leases[0].guidance == ()
    assert world.leases[-1].guidance == (builtin().ids[0],)


def test_messages_to_a_validation_rollout_cannot_hold_guidance() -> None:
    blob = msgspec.msgpack.encode({"type": "EvalLease", "guidance": ["x"]})
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(blob, type=EvalLease)


async def test_a_generator_that_computes_something_else_is_quarantined_and_the_run_goes_on(tmp_path: Path) -> None:
    world = World(_config(eval={"every": 0}), tmp_path)
    odd_since: list[int] = []
    leased_to_it: list[TrainLease] = []

    def probe(name: str, version: int) -> tuple[float, ...]:
        if name == "x" and version >= 2:
            odd_since.append(version)
            return (-1.0, -7.0)
        return (-1.0, -2.0 - 1e-6 * len(name))

    def leased(name: str, lease: TrainLease) -> bool:
        if name == "x" and odd_since and any(event["type"] == "restart" for event in world.events):
            leased_to_it.append(lease)
        return True

    world.probe, world.before_lease = probe, leased
    await world.play(("p", "long-name", "x"))
    restarts = [event["name"] for event in world.events if event["type"] == "restart"]
    assert restarts == ["x"]
    assert leased_to_it == []
    events = list(read_json_lines(world.run_dir.events))
    (quarantined,) = (event for event in events if event["type"] == "producer_quarantined")
    assert "disagree about version" in quarantined["reason"]
    assert "x: -7.0000" in quarantined["reason"]
    assert [line["step"] for line in read_json_lines(world.run_dir.metrics)] == [0, 1, 2, 3]
