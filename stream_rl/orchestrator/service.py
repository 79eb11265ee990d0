"""The orchestrator: one actor that owns the state of the run.

consumes: what producers, learner, judges and people send, one event at a time. waits for: the next event.
produces: leases, rounds, weight updates, metrics. unblocked by: any event; every event is followed by one `_pump`,
which does all that has become possible. The ledger is written before anything leaves the process.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import anyio
import anyio.abc
import msgspec

from stream_rl.config import Config
from stream_rl.errors import RoleDied
from stream_rl.messages import (
    CheckpointSaved,
    EvalLease,
    Finish,
    FromOrchestrator,
    GroupClosed,
    LearnerReady,
    ProducerReady,
    ProducerStats,
    RoundStart,
    SaveCheckpoint,
    SelectedGroup,
    StatusReply,
    StatusRequest,
    ToOrchestrator,
    Trained,
    TrainLease,
    TrajectoryDone,
    UpdateWeights,
    WeightsFailed,
    WeightsLive,
)
from stream_rl.observe.alarms import AlarmWatch
from stream_rl.observe.rundir import RunDirectory, append_json
from stream_rl.observe.states import StateClock
from stream_rl.orchestrator.choosing import choose, flight_profile, hint_for
from stream_rl.orchestrator.evaluation import Evaluation
from stream_rl.orchestrator.fleet import Fleet, ProducerState
from stream_rl.orchestrator.flight import Flight
from stream_rl.orchestrator.gate import Gate
from stream_rl.orchestrator.judging import JudgingStage
from stream_rl.orchestrator.learning import LearnerState, attribute_waits, judge_wait
from stream_rl.orchestrator.ledger import GroupRow, Ledger
from stream_rl.orchestrator.outbox import Outboxes
from stream_rl.orchestrator.tally import Tally
from stream_rl.orchestrator.tasks import TaskStream, evaluation_tasks, stable_seed
from stream_rl.orchestrator.writer import LedgerWriter
from stream_rl.ports import Hub, Judge, PeerJoined, PeerLeft, Received
from stream_rl.rubrics.guidance import hint_text
from stream_rl.rubrics.steering import Steering
from stream_rl.rubrics.vocabulary import Vocabulary
from stream_rl.types import Verdict, WeightsManifest

Board = Callable[[dict[str, Any]], None]

_FAILURES_IN_A_ROW = 4  # rounds' worth of discarded groups without one good group between them


class _Judged(msgspec.Struct, frozen=True, eq=False):
    verdict: Verdict


class _Stop(msgspec.Struct, frozen=True):
    reason: str


class _UpdateOverdue(msgspec.Struct, frozen=True):
    peer: str
    version: int


class _Stalled(msgspec.Struct, frozen=True):
    seconds: float


_Event = PeerJoined | PeerLeft | Received[ToOrchestrator] | _Judged | _Stop | _UpdateOverdue | _Stalled


class Orchestrator:
    """See the module's docstring. `run` returns when the run is complete or was stopped in order."""

    def __init__(
        self,
        *,
        config: Config,
        run: RunDirectory,
        hub: Hub[FromOrchestrator, ToOrchestrator],
        ledger: Ledger,
        judge: Judge | None,
        judge_workers: int,
        vocabulary: Vocabulary,
        board: Board,
        version: int = 0,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`version`: of the start policy, or of the checkpoint to go on from. `board`: told what people see."""
        self._config = config
        self._run_dir = run
        self._hub = hub
        self._ledger = LedgerWriter(ledger)
        self._vocabulary = vocabulary
        self._rubric_ids = vocabulary.ids if judge else ()
        self._board = board
        self._clock = clock
        self._wall = wall
        self._inbox_send, self._inbox = anyio.create_memory_object_stream[_Event](math.inf)
        self._judging = (
            JudgingStage(
                judge,
                workers=judge_workers,
                required=config.judge.required,
                deliver=self._judged,
                trouble=self._judge_trouble,
            )
            if judge
            else None
        )
        self._gate = Gate(
            depth=config.async_depth,
            candidates=config.groups.candidates,
            last_round=max(config.updates, version),
            version=version,
        )
        self._tickets = TaskStream({e.name: e.share for e in config.environments}, config.seed)
        self._fleet = Fleet()
        self._learner: LearnerState | None = None
        self._flights: dict[str, Flight] = {}
        self._again: deque[str] = deque()  # groups whose producer is gone
        self._manifest: WeightsManifest | None = None  # newest published weights
        self._evaluation: Evaluation | None = None
        self._evaluated = -1  # newest version whose evaluation is over
        self._steering = {
            e.name: Steering(
                len(vocabulary.rubrics),
                rate=config.algorithm.steering_rate,
                floor=config.algorithm.steering_floor,
                top=config.algorithm.steering_top,
            )
            for e in config.environments
        }
        self._tally = Tally()
        self._alarms = AlarmWatch(config.alarms)
        self._raised: list[dict[str, Any]] = []
        self._phase = StateClock(["starting", "training", "evaluating", "stopping"], clock)
        self._wall_offset_s = 0.0
        self._train_offset_s = 0.0
        self._stopping: str | None = None
        self._finished = False
        self._checkpoint_version = version or -1
        self._failures = 0
        self._progress_s = clock()
        self._judge_problem: str | None = None
        self._last_line: dict[str, Any] | None = None
        self._last_eval: dict[str, Any] | None = None
        self._tasks: anyio.abc.TaskGroup
        self._outboxes: Outboxes[FromOrchestrator, ToOrchestrator]

    # life

    async def run(self, stop: anyio.Event) -> None:
        """Serve until every update is trained and evaluated, or until `stop`. Raises `RoleDied` on a lost learner."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            self._outboxes = Outboxes(self._hub, tasks)
            tasks.start_soon(self._listen)
            tasks.start_soon(self._watch_stop, stop)
            tasks.start_soon(self._watch_stall)
            if self._judging:
                tasks.start_soon(self._judging.run)
            await self._restore()
            async for event in self._inbox:
                await self._handle(event)
                await self._pump()
                if self._finished:
                    break
            await self._outboxes.close()
            tasks.cancel_scope.cancel()
        await self._ledger.close()

    async def _listen(self) -> None:
        async for event in self._hub:
            await self._inbox_send.send(event)

    async def _watch_stop(self, stop: anyio.Event) -> None:
        await stop.wait()
        await self._inbox_send.send(_Stop("asked to stop"))

    async def _watch_stall(self) -> None:
        """Progress, not work in flight, is what is watched."""
        while True:
            quiet_s = self._clock() - self._progress_s
            if quiet_s >= self._config.stall_s:
                await self._inbox_send.send(_Stalled(quiet_s))
                return
            await anyio.sleep(self._config.stall_s - quiet_s)

    async def _judged(self, verdict: Verdict) -> None:
        await self._inbox_send.send(_Judged(verdict))

    def _judge_trouble(self, problem: str | None) -> None:
        self._judge_problem = problem
        self._event("judge", problem=problem)

    async def _restore(self) -> None:
        """Take over what an earlier process of this run left in the ledger."""
        version = self._gate.version
        rows = await self._ledger.do(Ledger.groups, from_round=version)
        self._tickets.skip(await self._ledger.do(Ledger.next_position))
        for name, steering in self._steering.items():
            steering.restore(await self._ledger.do(Ledger.get, f"steering/{name}"))
        for row in rows:
            await self._restore_group(row)
        for round_ in sorted({row.round for row in rows}):
            for group in await self._ledger.do(Ledger.unselected, round_):
                self._gate.restore(group.group_id, round_)
                self._flights[group.group_id] = await self._load(group, "unselected")

    async def _restore_group(self, row: GroupRow) -> None:
        self._gate.restore(row.group_id, row.round)
        match row.state:
            case "leased":
                self._flights[row.group_id] = Flight(row=row, stage="waiting")
                self._again.append(row.group_id)
            case "selected":
                flight = await self._load(row, "selected")
                flight.hint = row.hint
                self._flights[row.group_id] = flight
            case _:
                flight = await self._load(row, "produced")
                self._flights[row.group_id] = flight
                if row.state == "produced":
                    self._submit(flight)
                    await self._settle(flight)
                else:
                    if row.state == "judged":
                        await self._ledger.do(Ledger.advance, row.group_id, "candidate", self._wall())
                    flight.stage = "candidate"

    async def _load(self, row: GroupRow, stage: Any) -> Flight:
        trajectories = await self._ledger.do(Ledger.trajectories, row.group_id)
        verdicts = await self._ledger.do(Ledger.verdicts, row.group_id)
        flight = Flight(row=row, stage=stage)
        flight.trajectories = {t.id: t for t in trajectories}
        flight.verdicts = {v.trajectory_id: v for v in verdicts}
        return flight

    # events

    async def _handle(self, event: _Event) -> None:
        match event:
            case PeerJoined():
                self._outboxes.open(event.peer)
                if event.role == "producer":
                    self._fleet.by_peer[event.peer] = ProducerState(peer=event.peer, name=event.name)
            case PeerLeft():
                await self._peer_left(event)
            case Received():
                await self._receive(event.peer, event.message, event.ack)
            case _Judged():
                await self._take_verdict(event.verdict)
            case _Stop():
                self._begin_stop(event.reason)
            case _UpdateOverdue():
                self._update_overdue(event)
            case _Stalled():
                raise RoleDied(
                    f"no progress for {event.seconds:.0f} s (stall_s = {self._config.stall_s:g}): {self._describe()}"
                )

    async def _receive(self, peer: str, message: ToOrchestrator, ack: Callable[[], None]) -> None:
        match message:
            case TrajectoryDone():
                await self._take_trajectory(peer, message)
            case GroupClosed():
                await self._close_group(peer, message.group_id)
            case ProducerReady():
                self._producer_ready(peer, message)
            case ProducerStats():
                if producer := self._fleet.by_peer.get(peer):
                    self._tally.role_states(producer.name, message.states)
            case WeightsLive():
                self._weights_live(peer, message)
            case WeightsFailed():
                self._event("weights_failed", peer=peer, version=message.version, error=message.error)
            case LearnerReady():
                await self._learner_ready(peer, message)
            case Trained():
                await self._trained(peer, message)
            case CheckpointSaved():
                await self._checkpoint_saved(message)
            case StatusRequest():
                self._outboxes.post(peer, StatusReply(status=self.status()))
        ack()

    async def _peer_left(self, event: PeerLeft) -> None:
        self._outboxes.drop(event.peer)
        producer = self._fleet.by_peer.pop(event.peer, None)
        if producer:
            if not self._finishing:
                self._event("producer_left", name=producer.name, reason=event.reason, leases=len(producer.leases))
            for group_id in producer.leases:
                if self._evaluation and group_id in self._evaluation.running:
                    self._evaluation.lost(group_id)
                elif flight := self._flights.get(group_id):
                    flight.stage = "waiting"
                    flight.producer = None
                    flight.trajectories.clear()
                    flight.verdicts.clear()
                    self._again.append(group_id)
        elif self._learner and self._learner.peer == event.peer and not self._finishing:
            raise RoleDied(
                f"the learner left ({event.reason}) at version {self._learner.version}; "
                f"see {self._run_dir.logs / 'learner-0.log'}, then go on with --resume {self._run_dir.root}"
            )

    @property
    def _finishing(self) -> bool:
        return self._finished or (self._stopping is not None and self._learner is None)

    def _producer_ready(self, peer: str, message: ProducerReady) -> None:
        producer = self._fleet.by_peer[peer]
        producer.engine = message.engine
        producer.capacity = message.capacity
        producer.version = producer.asked = message.version
        self._progress_s = self._clock()
        self._event("producer_ready", name=producer.name, engine=message.engine, capacity=message.capacity)

    async def _learner_ready(self, peer: str, message: LearnerReady) -> None:
        if message.version != self._gate.version:
            raise RoleDied(
                f"the learner starts at version {message.version}, the ledger at {self._gate.version}: "
                "they come from different checkpoints"
            )
        await self._ledger.do(Ledger.publish, message.manifest, live=True)
        self._manifest = message.manifest
        self._learner = self._waiting_learner(peer, message.version)
        self._progress_s = self._clock()
        self._event("learner_ready", version=message.version)

    def _waiting_learner(self, peer: str, version: int) -> LearnerState:
        eval_s = self._phase.snapshot()["evaluating"]
        return LearnerState(peer=peer, version=version, idle_since_s=self._clock(), idle_since_eval_s=eval_s)

    # rollouts

    async def _take_trajectory(self, peer: str, message: TrajectoryDone) -> None:
        trajectory = message.trajectory
        if message.purpose == "eval":
            if self._evaluation and trajectory.group_id in self._evaluation.running:
                await self._ledger.do(Ledger.add_trajectory, trajectory, "eval")
                self._evaluation.add(trajectory)
            return
        flight = self._flights.get(trajectory.group_id)
        if flight is None or flight.producer != peer or trajectory.id in flight.trajectories:
            return  # of a lease that is somebody else's by now, or a duplicate
        await self._ledger.do(Ledger.add_trajectory, trajectory, "train")
        flight.trajectories[trajectory.id] = trajectory
        self._tally.trajectory(trajectory)
        if self._judging and trajectory.valid:
            self._judging.submit(trajectory)

    async def _close_group(self, peer: str, group_id: str) -> None:
        producer = self._fleet.by_peer.get(peer)
        if producer:
            producer.leases.pop(group_id, None)
        self._progress_s = self._clock()
        if self._evaluation and group_id in self._evaluation.running:
            self._evaluation.running.discard(group_id)
            return
        flight = self._flights.get(group_id)
        if flight is None or flight.producer != peer:
            return
        flight.producer = None
        flight.produced_s = flight.judged_s = self._clock()
        await self._ledger.do(Ledger.advance, group_id, "produced", self._wall())
        await self._settle(flight)

    async def _settle(self, flight: Flight) -> None:
        """A group's rollouts are all in: it is discarded for a reason, or goes on to its verdicts."""
        flight.stage = "produced"
        if len(flight.valid) < self._config.min_valid:
            await self._discard(flight, "too_few_valid")
        elif flight.lag > self._config.lag_limit:
            await self._discard(flight, "stale")
        else:
            await self._judge_done(flight)

    def _submit(self, flight: Flight) -> None:
        if self._judging:
            for trajectory in flight.unjudged:
                self._judging.submit(trajectory)

    async def _take_verdict(self, verdict: Verdict) -> None:
        group_id = verdict.trajectory_id.rsplit("/", 1)[0]
        flight = self._flights.get(group_id)
        if flight is None or verdict.trajectory_id not in flight.trajectories:
            return  # discarded, or leased again, while it was judged
        await self._ledger.do(Ledger.add_verdict, verdict)
        flight.verdicts[verdict.trajectory_id] = verdict
        self._tally.verdict(verdict)
        await self._judge_done(flight)

    async def _judge_done(self, flight: Flight) -> None:
        """Make a produced group a candidate once nothing is missing."""
        if flight.stage != "produced" or (self._judging and flight.unjudged):
            return
        flight.judged_s = self._clock()
        now = self._wall()
        await self._ledger.do(Ledger.advance_all, flight.group_id, ("judged", "candidate"), now)
        flight.stage = "candidate"
        self._failures = 0
        if self._judging:
            self._steering[flight.row.task.environment].observe(flight_profile(flight, self._rubric_ids))

    async def _discard(self, flight: Flight, reason: str) -> None:
        """Give its permit back, for a counted reason; its place in the round opens again."""
        await self._ledger.do(Ledger.advance, flight.group_id, "discarded", self._wall(), reason)
        self._gate.discard(flight.group_id)
        del self._flights[flight.group_id]
        self._tally.discard(flight, reason)
        errors = sorted({t.error for t in flight.trajectories.values() if t.error})
        self._event("discarded", group=flight.group_id, reason=reason, errors=errors[:3])
        self._failures += 1
        if self._failures >= _FAILURES_IN_A_ROW * self._config.groups.candidates:
            raise RoleDied(
                f"{self._failures} groups in a row were discarded, the last as {reason}: {errors[0] if errors else ''}"
            )

    # learner

    async def _trained(self, peer: str, message: Trained) -> None:
        learner = self._learner
        if learner is None or peer != learner.peer or message.update != learner.version:
            raise RoleDied(f"the learner reports update {message.update}, which was not its round")
        now = self._wall()
        await self._ledger.do(Ledger.train, message.update, message.group_ids, message.refused, message.manifest, now)
        round_ = [self._flights[g] for g in self._gate.members(message.update)]
        trained = [f for f in round_ if f.group_id in set(message.group_ids)]
        for group_id, reason in message.refused.items():
            self._tally.discard(self._flights[group_id], reason)
        for flight in round_:
            if flight.stage == "unselected":
                self._tally.discard(flight, "not_selected")
        metrics = dict(message.metrics)
        metrics["learner"] = attribute_waits(
            metrics.get("learner", {}), judge_wait_s=learner.judge_wait_s, eval_overlap_s=learner.eval_overlap_s
        )
        line = self._tally.line(step=message.update, candidates=round_, trained=trained, learner=metrics)
        self._write_line(line)
        for name, steering in self._steering.items():
            state = steering.state()
            await self._ledger.do(Ledger.put, f"steering/{name}", state)
        self._manifest = message.manifest
        self._learner = self._waiting_learner(peer, message.version)
        if message.checkpoint:
            await self._note_checkpoint(message.version, message.checkpoint)
        self._progress_s = self._clock()

    def _write_line(self, line: dict[str, Any]) -> None:
        line = {**line, **self._times()}
        alarms = self._alarms.observe(line)
        line["alarms"] = [alarm.name for alarm in alarms]
        append_json(self._run_dir.metrics, line)
        self._last_line = line
        self._board({"type": "update", **line})
        for alarm in alarms:
            raised = msgspec.to_builtins(alarm)
            self._raised.append(raised)
            self._event("alarm", **raised)

    def _times(self) -> dict[str, float]:
        states = self._phase.snapshot()
        return {
            "wall_s": self._wall_offset_s + sum(states.values()),
            "train_s": self._train_offset_s + states["training"],
        }

    def resume_times(self, *, wall_s: float, train_s: float) -> None:
        """Clocks go on from where an earlier process of this run stopped."""
        self._wall_offset_s = wall_s
        self._train_offset_s = train_s

    def resume_evaluated(self, version: int) -> None:
        """Versions up to `version` have their evaluation already."""
        self._evaluated = version

    async def _note_checkpoint(self, version: int, path: str) -> None:
        await self._ledger.do(Ledger.add_checkpoint, version, path)
        self._checkpoint_version = version
        self._event("checkpoint", version=version, path=path)

    async def _checkpoint_saved(self, message: CheckpointSaved) -> None:
        await self._note_checkpoint(message.version, message.path)
        if self._learner:
            self._learner.saving = False

    def _weights_live(self, peer: str, message: WeightsLive) -> None:
        producer = self._fleet.by_peer.get(peer)
        if producer is None:
            return
        producer.version = message.report.version
        self._tally.role_states("weights", {"pause_s": message.report.pause_s, "load_s": message.report.load_s})
        self._progress_s = self._clock()

    def _update_overdue(self, event: _UpdateOverdue) -> None:
        producer = self._fleet.by_peer.get(event.peer)
        if producer and producer.version < event.version:
            self._event(
                "producer_quarantined",
                name=producer.name,
                reason=f"version {event.version} was not live after {self._config.weights.deadline_s:g} s",
            )
            producer.capacity = 0
            self._board({"type": "restart", "name": producer.name})

    # what has become possible

    async def _pump(self) -> None:
        self._push_weights()
        await self._go_live()
        await self._evaluate()
        await self._lease()
        await self._select()
        await self._deliver()
        await self._finish()
        self._set_phase()

    @property
    def _started(self) -> bool:
        return self._learner is not None and bool(self._fleet.ready)

    def _set_phase(self) -> None:
        if self._stopping is not None:
            phase = "stopping"
        elif not self._started and self._phase.state == "starting":
            phase = "starting"
        else:
            phase = "evaluating" if self._evaluation else "training"
        if phase != self._phase.state:
            self._phase.enter(phase)
            self._board({"type": "phase", "phase": phase, **self._times()})

    def _push_weights(self) -> None:
        """Tell every producer that is behind about the newest weights, unless an evaluation holds them back."""
        manifest = self._manifest
        if manifest is None or (self._evaluation and manifest.version > self._evaluation.version):
            return
        if self._config.weights.mode == "drain" and self._fleet.running and manifest.version > self._gate.version:
            return
        for producer in self._fleet.ready:
            if producer.asked < manifest.version:
                producer.asked = manifest.version
                self._outboxes.post(producer.peer, UpdateWeights(manifest=manifest))
                self._tasks.start_soon(self._overdue, _UpdateOverdue(producer.peer, manifest.version))

    async def _overdue(self, event: _UpdateOverdue) -> None:
        await anyio.sleep(self._config.weights.deadline_s)
        await self._inbox_send.send(event)

    async def _go_live(self) -> None:
        """Version v + 1 is on every generator: round v is over and its permits come back."""
        manifest = self._manifest
        if manifest is None or manifest.version <= self._gate.version or not self._fleet.all_at(manifest.version):
            return
        await self._ledger.do(Ledger.publish, manifest, live=True)
        for group_id in self._gate.round_live(manifest.version - 1):
            del self._flights[group_id]

    async def _evaluate(self) -> None:
        if self._evaluation and self._evaluation.done:
            await self._end_evaluation(self._evaluation)
        version = self._gate.version
        if self._evaluation is None and self._evaluation_due(version):
            names = tuple(e.name for e in self._config.environments)
            tasks = evaluation_tasks(names, self._config.eval.tasks)
            self._evaluation = Evaluation(version, tasks, self._config.eval.rollouts)
        if self._evaluation and self._stopping is None:
            await self._lease_evaluation(self._evaluation)

    def _evaluation_due(self, version: int) -> bool:
        every = self._config.eval.every
        due = every > 0 and (version % every == 0 or self._gate.finished)
        ready = self._started and self._fleet.all_at(version) and self._stopping is None
        return due and ready and version > self._evaluated

    async def _lease_evaluation(self, evaluation: Evaluation) -> None:
        size = evaluation.rollouts
        while evaluation.waiting and (producer := self._fleet.choose(size, version=evaluation.version)):
            group_id = evaluation.waiting.popleft()
            evaluation.running.add(group_id)
            producer.leases[group_id] = size
            await self._ledger.do(Ledger.drop_group, group_id)
            task = evaluation.task(group_id)
            generate = self._config.generate
            lease = EvalLease(
                group_id=group_id,
                task=task,
                size=size,
                seed=stable_seed(self._config.seed + evaluation.version, task.environment, "held_out", task.index),
                temperature=self._config.eval.temperature,
                max_tokens=generate.max_tokens,
                max_turns=generate.max_turns,
                deadline_s=self._config.groups.deadline_s,
            )
            self._outboxes.post(producer.peer, lease)

    async def _end_evaluation(self, evaluation: Evaluation) -> None:
        self._evaluation = None
        self._evaluated = evaluation.version
        record = {"step": evaluation.version, **evaluation.summary(), **self._times()}
        append_json(self._run_dir.eval, record)
        self._last_eval = record
        self._board({"type": "eval", **record})
        self._push_weights()

    async def _lease(self) -> None:
        """Issue every lease that gate, producers and the state of the run allow."""
        if self._evaluation or self._stopping is not None or not self._started:
            return
        if self._config.weights.mode == "drain" and self._manifest and self._manifest.version > self._gate.version:
            return
        size = self._config.groups.size
        while producer := self._fleet.choose(size, version=self._gate.version):
            flight = await self._next_flight()
            if flight is None:
                return
            flight.stage = "leased"
            flight.producer = producer.peer
            producer.leases[flight.group_id] = size
            generate = self._config.generate
            lease = TrainLease(
                group_id=flight.group_id,
                task=flight.row.task,
                size=size,
                seed=flight.row.seed,
                temperature=generate.temperature,
                max_tokens=generate.max_tokens,
                max_turns=generate.max_turns,
                deadline_s=self._config.groups.deadline_s,
                guidance=flight.row.guidance,
            )
            self._outboxes.post(producer.peer, lease)

    async def _next_flight(self) -> Flight | None:
        if self._again:
            flight = self._flights[self._again.popleft()]
            await self._ledger.do(Ledger.lease_again, flight.group_id, self._wall())
            return flight
        round_ = self._gate.open_round
        if round_ is None:
            return None
        ticket = self._tickets.take()
        avoid = self._steering[ticket.task.environment].avoid(self._rubric_ids) if self._rubric_ids else ()
        row = GroupRow(
            group_id=f"g{ticket.position:06d}",
            position=ticket.position,
            round=round_,
            task=ticket.task,
            seed=ticket.seed,
            guidance=avoid if self._config.algorithm.steering else (),
            state="leased",
            attempts=1,
        )
        await self._ledger.do(Ledger.lease, row, self._wall())
        self._gate.admit(row.group_id)
        flight = Flight(row=row, stage="leased")
        self._flights[row.group_id] = flight
        return flight

    async def _select(self) -> None:
        """Close every round whose candidates are all there; with 'all', pass each candidate on at once."""
        a = self._config.algorithm
        for round_ in range(self._gate.version, self._gate.version + self._config.async_depth + 1):
            flights = [self._flights[g] for g in self._gate.members(round_)]
            candidates = [f for f in flights if f.stage == "candidate"]
            if a.selection == "all":
                chosen = {f.group_id for f in candidates}
            elif self._gate.is_full(round_) and len(candidates) == len(flights):
                count = self._config.groups.per_update
                chosen = set(choose(candidates, count, a, self._rubric_ids, seed=self._config.seed, round_=round_))
            else:
                continue
            if not chosen:
                continue
            hints = {f.group_id: hint_for(f, a, self._rubric_ids) for f in candidates if f.group_id in chosen}
            dropped = [f.group_id for f in candidates if f.group_id not in chosen]
            now = self._wall()
            await self._ledger.do(Ledger.select, round_, hints, dropped, now)
            for flight in candidates:
                flight.stage = "selected" if flight.group_id in chosen else "unselected"
                flight.hint = hints.get(flight.group_id)

    async def _deliver(self) -> None:
        """Send the learner what is selected for the round it waits for."""
        learner = self._learner
        if learner is None or learner.complete or self._evaluation or self._gate.finished:
            return
        if self._stopping is not None and not learner.started:
            return
        round_ = learner.version
        members = self._gate.members(round_)
        count = self._config.groups.per_update
        for group_id in members:
            flight = self._flights[group_id]
            if flight.stage != "selected" or group_id in learner.delivered:
                continue
            if not learner.started:
                learner.started = True
                self._outboxes.post(learner.peer, RoundStart(update=round_, num_groups=count))
            learner.delivered.append(group_id)
            self._outboxes.post(learner.peer, self._selected_group(flight))
        if len(learner.delivered) == count:
            learner.complete = True
            learner.judge_wait_s = judge_wait([self._flights[g] for g in members], learner.idle_since_s)
            learner.eval_overlap_s = self._phase.snapshot()["evaluating"] - learner.idle_since_eval_s

    def _selected_group(self, flight: Flight) -> SelectedGroup:
        hint = hint_text(self._vocabulary, flight.hint) if flight.hint else None
        return SelectedGroup(
            update=flight.row.round,
            group_id=flight.group_id,
            trajectories=tuple(sorted(flight.trajectories.values(), key=lambda t: t.member)),
            hint=hint,
            hint_rubrics=flight.hint or (),
            judge_s=flight.judged_s - flight.produced_s,
        )

    # the end

    def _begin_stop(self, reason: str) -> None:
        if self._stopping is None:
            self._stopping = reason
            self._event("stopping", reason=reason)

    async def _finish(self) -> None:
        """Stop in order: the update that is under way ends, a checkpoint is written, everybody is told."""
        complete = self._gate.finished and self._evaluation is None and not self._evaluation_due(self._gate.version)
        if self._stopping is None and not complete:
            return
        learner = self._learner
        if learner and (learner.complete or learner.saving):
            return
        if learner and self._checkpoint_version != learner.version:
            learner.saving = True
            self._outboxes.post(learner.peer, SaveCheckpoint())
            return
        reason = self._stopping or "every update is trained"
        for peer in [*self._fleet.by_peer, *([learner.peer] if learner else [])]:
            self._outboxes.post(peer, Finish(reason=reason))
        self._finished = True
        self._event("finished", reason=reason, complete=complete, version=self._gate.version)

    def _event(self, kind: str, **data: Any) -> None:
        record = {"type": kind, "at": self._wall(), **data}
        append_json(self._run_dir.events, record)
        self._board(record)

    # what people see

    def status(self) -> dict[str, Any]:
        """The run at this moment, as plain data."""
        stages: dict[str, int] = {}
        for flight in self._flights.values():
            stages[flight.stage] = stages.get(flight.stage, 0) + 1
        line = self._last_line or {}
        return {
            "run": self._run_dir.root.name,
            "phase": self._phase.state,
            **self._times(),
            "version": self._gate.version,
            "updates": self._config.updates,
            "async_depth": self._config.async_depth,
            "permits": {"taken": self._gate.taken, "free": self._gate.free, "capacity": self._gate.capacity},
            "groups": dict(sorted(stages.items())),
            "success": line.get("success"),
            "lag": line.get("lag"),
            "eval": self._last_eval,
            "judge": {
                "waiting": self._judging.waiting if self._judging else 0,
                "problem": self._judge_problem,
            },
            "producers": [
                {
                    "name": p.name,
                    "engine": p.engine,
                    "version": p.version,
                    "rollouts": sum(p.leases.values()),
                    "capacity": p.capacity,
                }
                for p in self._fleet.by_peer.values()
            ],
            "learner": (
                {"version": self._learner.version, "waiting": not self._learner.complete} if self._learner else None
            ),
            "alarms": self._raised[-5:],
        }

    def _describe(self) -> str:
        status = self.status()
        waiting = "the learner waits" if status["learner"] and status["learner"]["waiting"] else "the learner works"
        return (
            f"phase {status['phase']}, version {status['version']}, permits {status['permits']}, "
            f"groups {status['groups']}, {len(status['producers'])} producers, "
            f"{waiting if status['learner'] else 'no learner'}, judge: {status['judge']['problem'] or 'answers'}"
        )
