"""Scripted producers, learner and judge: the real protocol over in-memory links, no model, and time as drawn."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import anyio
import anyio.abc
import msgspec

from learner.rounds import refusals
from stream_rl.errors import LinkError
from stream_rl.link.codec import Decoder
from stream_rl.link.limits import Limits
from stream_rl.link.link_end import LinkEnd
from stream_rl.link.memory import MemoryHub
from stream_rl.messages import (
    CheckpointSaved,
    EvalLease,
    Finish,
    FromProducer,
    GroupClosed,
    LearnerReady,
    ProducerReady,
    RoundStart,
    SaveCheckpoint,
    SelectedGroup,
    ToControl,
    ToLearner,
    ToProducer,
    Trained,
    TrainLease,
    TrajectoryDone,
    Tune,
    UpdateWeights,
    WeightsFailed,
    WeightsLive,
)
from stream_rl.producer.gate import DrainGate, OpenGate
from stream_rl.types import Scores, Tag, Trajectory, UpdateReport, Verdict, WeightsManifest, Writing
from tests.unit.orchestrator.virtual.schedule import Schedule, Weather, Wish
from tests.unit.records import RUBRICS, trajectory

_RESTART_S = 1.0  # the supervisor's pause before it starts a producer again, and people's before they ask again


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """What the learner did with one round."""

    update: int
    trained: tuple[SelectedGroup, ...]
    refused: dict[str, str]  # group id -> reason


class History:
    """What the roles did over all lives of the run. What is written here is on disk: it outlives every process."""

    def __init__(self) -> None:
        self.leases: list[TrainLease] = []
        self.updates: list[Update] = []
        self.checkpoints = {0}  # versions the learner can start from
        self.finished: list[str] = []  # roles of this life that were told of its end
        self.deepest = 0  # the largest async depth that was ever in force

    @property
    def last_updates(self) -> dict[int, Update]:
        """By round. One that was lost with its checkpoint was done again, and the last time counts."""
        return {update.update: update for update in self.updates}

    @property
    def newest(self) -> int:
        """Version of the newest checkpoint."""
        return max(self.checkpoints)


def manifest(version: int) -> WeightsManifest:
    """Where a version would lie."""
    return WeightsManifest(run_id="r", version=version, path=f"v{version}", fingerprint=f"f{version}", num_bytes=1)


class ScriptedProducer:
    """A producer that dies and comes back, as its supervisor has it."""

    def __init__(self, hub: MemoryHub, limits: Limits, name: str, schedule: Schedule, life: int, log: History) -> None:
        self.name = name
        self._hub = hub
        self._limits = limits
        self._schedule = schedule
        self._weather = schedule.weather
        self._rng = random.Random(f"{name}/{life}/{schedule.seed}")
        self._log = log
        self._version = 0
        self._process = anyio.CancelScope()
        self._finished = False

    async def live(self, join_s: float) -> None:
        """Processes of this producer, one after the other, until one is told that the run is over."""
        await anyio.sleep(join_s)
        while not self._finished:
            begin, end = self._weather.dark
            if begin <= anyio.current_time() < end:
                await anyio.sleep(end - anyio.current_time())
            self._version = 0  # as a process starts: it loads the start policy and is brought up to date
            self._process = anyio.CancelScope()
            try:
                with self._process:
                    await self._serve()
            except* LinkError:
                pass  # the hub took it for dead, or a newer process of it came: it ends, and is started again
            await anyio.sleep(_RESTART_S)
        self._log.finished.append(self.name)

    def kill(self) -> None:
        """As `kill -9`: nobody says goodbye."""
        self._hub.cut(self.name)
        self._process.cancel()

    async def _serve(self) -> None:
        receive: Decoder[ToProducer] = Decoder(ToProducer)
        gate = DrainGate() if self._schedule.config.weights.mode == "drain" else OpenGate()
        async with (
            self._hub.connect(role="producer", name=self.name, receive=receive, limits=self._limits) as link,
            anyio.create_task_group() as tasks,
        ):
            await link.send(ProducerReady(engine="scripted", version=self._version, capacity=self._weather.capacity))
            tasks.start_soon(self._mortal)
            async for delivery in link:
                match delivery.message:
                    case TrainLease() | EvalLease() as lease:
                        tasks.start_soon(self._roll_out, link, gate, lease, delivery.ack)
                    case UpdateWeights(manifest=weights):
                        tasks.start_soon(self._load, link, gate, weights, delivery.ack)
                    case Finish():
                        delivery.ack()
                        self._finished = True
                        break
            tasks.cancel_scope.cancel()

    async def _mortal(self) -> None:
        """Its own death, and the dark spell; in order, so that the hub hears of it."""
        begin, end = self._weather.dark
        until_dark = begin - anyio.current_time() if anyio.current_time() < end else math.inf
        life_s = self._weather.producer_life_s
        dies_s = self._rng.expovariate(1 / life_s) if life_s < math.inf else math.inf
        await anyio.sleep(max(0.0, min(dies_s, until_dark)))
        if self._rng.random() < 0.5:
            self.kill()
        else:
            self._process.cancel()

    async def _load(
        self, link: LinkEnd[ToProducer], gate: DrainGate | OpenGate, weights: WeightsManifest, ack: Callable[[], None]
    ) -> None:
        async with gate.update():
            fate = self._rng.random()
            if fate < self._weather.update_hangs_p:
                await anyio.sleep_forever()
            await anyio.sleep(_about(self._rng, self._weather.update_s))
            if fate < self._weather.update_hangs_p + self._weather.update_fails_p:
                await link.send(WeightsFailed(version=weights.version, error="wrong fingerprint"))
                ack()
                self._process.cancel()
                return
            self._version = weights.version
        report = UpdateReport(version=weights.version, fingerprint=weights.fingerprint, pause_s=0.0, load_s=0.0)
        await self._send(link, WeightsLive(report=report))
        ack()

    async def _roll_out(
        self,
        link: LinkEnd[ToProducer],
        gate: DrainGate | OpenGate,
        lease: TrainLease | EvalLease,
        ack: Callable[[], None],
    ) -> None:
        if isinstance(lease, TrainLease):
            self._log.leases.append(lease)
        async with gate.group():
            await self._play(link, lease)
            written = _writing(self._rng) if isinstance(lease, TrainLease) and lease.bundles else None
            await self._send(link, GroupClosed(group_id=lease.group_id, written=written))
        ack()

    async def _play(self, link: LinkEnd[ToProducer], lease: TrainLease | EvalLease) -> None:
        """Every member's turns in the order of their times; each token is of the version that is loaded then."""
        weather, rng = self._weather, self._rng
        train = isinstance(lease, TrainLease)
        all_fail = train and rng.random() < weather.group_fails_p
        versions = {member: [self._version] for member in range(lease.size)}  # the first token is sampled at once
        began_s = anyio.current_time()
        for at_s, member, last in _timeline(rng, weather, lease.size):
            late = at_s > lease.deadline_s
            await anyio.sleep(max(0.0, began_s + min(at_s, lease.deadline_s) - anyio.current_time()))
            if not late:
                old = train and rng.random() < weather.old_tokens_p
                versions[member].append(max(0, self._version - rng.randint(1, 3)) if old else self._version)
            if not last:
                continue
            if train and rng.random() < weather.silent_p:
                versions[member].clear()
            fails = all_fail or (train and rng.random() < weather.member_fails_p)
            error = "did not end in time" if late else "the world broke" if fails else None
            record = self._record(lease, member, versions[member], error)
            await self._send(link, TrajectoryDone(trajectory=record, purpose="train" if train else "eval"))

    def _record(self, lease: TrainLease | EvalLease, member: int, versions: list[int], error: str | None) -> Trajectory:
        record = trajectory(
            lease.group_id,
            member,
            success=self._rng.random() < 0.5,
            versions=tuple(versions),
            error=error,
        )
        return msgspec.structs.replace(record, task=lease.task)

    async def _send(self, link: LinkEnd[ToProducer], message: FromProducer) -> None:
        await link.send(message)
        if self._rng.random() < self._weather.twice_p:
            await link.send(message)


class ScriptedLearner:
    """Trains what it is sent, refuses now and then, and writes checkpoints."""

    def __init__(
        self,
        hub: MemoryHub,
        limits: Limits,
        schedule: Schedule,
        life: int,
        log: History,
        receives: Callable[[SelectedGroup], None],
    ) -> None:
        """`receives` looks at every group that comes, before it is trained or refused."""
        self._hub = hub
        self._limits = limits
        self._config = schedule.config
        self._weather = schedule.weather
        self._rng = random.Random(f"learner/{life}/{schedule.seed}")
        self._log = log
        self._receives = receives
        self._version = log.newest
        self._groups: list[SelectedGroup] = []

    async def live(self, until_s: float) -> None:
        """Serve until told to finish; die after `until_s`."""
        try:
            with anyio.move_on_after(until_s):
                await self._serve()
        except LinkError:
            pass  # the orchestrator is gone, or took the learner for dead: the run ends and is resumed

    async def _serve(self) -> None:
        receive: Decoder[ToLearner] = Decoder(ToLearner)
        async with self._hub.connect(role="learner", name="learner", receive=receive, limits=self._limits) as link:
            await anyio.sleep(_about(self._rng, 1.0))
            await link.send(LearnerReady(version=self._version, manifest=manifest(self._version)))
            expected = 0
            async for delivery in link:
                match delivery.message:
                    case RoundStart(update=update, num_groups=expected):
                        assert update == self._version, f"round {update} came to a learner at {self._version}"
                        self._groups = []
                    case SelectedGroup() as group:
                        assert group.update == self._version, f"{group.group_id} came to the wrong round"
                        self._receives(group)
                        self._groups.append(group)
                    case SaveCheckpoint():
                        self._log.checkpoints.add(self._version)
                        await link.send(CheckpointSaved(version=self._version, path=_folder(self._version)))
                    case Finish():
                        delivery.ack()
                        break
                delivery.ack()
                if expected and len(self._groups) == expected:
                    expected = 0
                    await link.send(await self._train())
            self._log.finished.append("learner")

    async def _train(self) -> Trained:
        update = self._version
        names = [group.group_id for group in self._groups]
        assert len(names) == len(set(names)), f"round {update} holds a group twice: {names}"
        refused = {name: "the script says so" for name in names if self._rng.random() < self._weather.refused_p}
        refused |= refusals(self._groups, version=update, max_lag=self._config.lag_limit)
        await anyio.sleep(_about(self._rng, self._weather.train_s))
        self._version += 1
        kept = tuple(group for group in self._groups if group.group_id not in refused)
        self._log.updates.append(Update(update=update, trained=kept, refused=refused))
        every = self._config.learner.checkpoint_every
        saved = every > 0 and self._version % every == 0
        if saved:
            self._log.checkpoints.add(self._version)
        return Trained(
            update=update,
            version=self._version,
            group_ids=tuple(group.group_id for group in kept),
            refused=refused,
            metrics={"learner": {"rollout_wait_s": 0.1, "total_s": 0.1}},
            manifest=manifest(self._version),
            checkpoint=_folder(self._version) if saved else None,
        )


class ScriptedPeople:
    """Ask for another depth, or for a pause."""

    def __init__(self, hub: MemoryHub, limits: Limits, wishes: Sequence[Wish]) -> None:
        self._hub = hub
        self._limits = limits
        self._wishes = wishes

    async def live(self) -> None:
        """Ask at the times wished for, each time over a link of its own, as the command does; again if that breaks."""
        began_s = anyio.current_time()
        for wish in self._wishes:
            await anyio.sleep(max(0.0, began_s + wish.after_s - anyio.current_time()))
            await self._ask(Tune(async_depth=wish.async_depth, paused=wish.paused))

    async def _ask(self, question: Tune) -> None:
        """Until there is an answer: the orchestrator may be out of reach for a while."""
        receive: Decoder[ToControl] = Decoder(ToControl)
        while True:
            try:
                async with self._hub.connect(
                    role="control", name="people", receive=receive, limits=self._limits
                ) as link:
                    await link.send(question)
                    async for delivery in link:
                        delivery.ack()
                        return
            except LinkError:
                pass
            await anyio.sleep(_RESTART_S)


class ScriptedJudge:
    """Answers late, abstains, and is out for a while."""

    def __init__(self, schedule: Schedule, life: int) -> None:
        self._weather = schedule.weather
        self._rng = random.Random(f"judge/{life}/{schedule.seed}")

    async def tag(self, trajectory: Trajectory) -> Verdict:
        """All rubrics, or none."""
        if not await self._answers():
            return Verdict(trajectory_id=trajectory.id, tags=tuple(Tag(rubric=r, value="abstained") for r in RUBRICS))
        abstains = self._rng.random() < self._weather.abstains_p
        tags = tuple(
            Tag(rubric=r, value="abstained" if abstains else self._rng.choice(("positive", "violation")))
            for r in RUBRICS
        )
        return Verdict(trajectory_id=trajectory.id, tags=tags, endpoint="http://judge")

    async def score(self, trajectory: Trajectory, criteria: tuple[str, ...]) -> Scores:
        """All criteria, or none."""
        if not await self._answers():
            return Scores(trajectory_id=trajectory.id, scores=(None,) * len(criteria))
        abstains = self._rng.random() < self._weather.abstains_p
        scores = tuple(None if abstains else self._rng.random() for _ in criteria)
        return Scores(trajectory_id=trajectory.id, scores=scores, endpoint="http://judge")

    async def _answers(self) -> bool:
        await anyio.sleep(_about(self._rng, self._weather.judge_s))
        begin, end = self._weather.judge_out
        return not begin <= anyio.current_time() < end


def _timeline(rng: random.Random, weather: Weather, size: int) -> list[tuple[float, int, bool]]:
    """Seconds since the lease, member, and whether it is the member's last turn; in order of time."""
    moments = []
    for member in range(size):
        at_s = 0.0
        turns = rng.randint(1, weather.max_turns)
        for turn in range(turns):
            at_s += weather.turn_s * (rng.paretovariate(weather.tail) - 0.9)
            moments.append((at_s, member, turn == turns - 1))
    return sorted(moments)


def _writing(rng: random.Random) -> Writing:
    if rng.random() < 0.2:
        return Writing(bundles=(), malformed=2, error="no usable bundle")
    return Writing(bundles=(("looks first",), ("opens what is closed", "looks first")))


def _about(rng: random.Random, mean_s: float) -> float:
    """An exponential draw around a mean; exactly 0 for a mean of 0."""
    return rng.expovariate(1 / mean_s) if mean_s else 0.0


def _folder(version: int) -> str:
    return f"checkpoints/{version:06d}"
