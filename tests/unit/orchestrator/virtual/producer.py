"""A scripted producer: the real protocol over an in-memory link, no model, and time as drawn."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import anyio
import msgspec

from stream_rl.errors import LinkError
from stream_rl.link.codec import Decoder
from stream_rl.link.limits import Limits
from stream_rl.link.link_end import LinkEnd
from stream_rl.link.memory import MemoryHub
from stream_rl.messages import (
    EvalLease,
    Finish,
    FromProducer,
    GroupClosed,
    ProducerReady,
    ToProducer,
    TrainLease,
    TrajectoryDone,
    UpdateWeights,
    WeightsFailed,
    WeightsLive,
)
from stream_rl.producer.gate import DrainGate, OpenGate
from stream_rl.types import Trajectory, UpdateReport, WeightsManifest, Writing
from tests.unit.orchestrator.virtual.history import History
from tests.unit.orchestrator.virtual.schedule import Schedule, Weather, about
from tests.unit.records import trajectory

_RESTART_S = 1.0  # the supervisor's pause before it starts a producer again


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
            await anyio.sleep(about(self._rng, self._weather.update_s))
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
