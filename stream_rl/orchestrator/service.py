"""The orchestrator: one actor that owns the state of the run.

consumes: what producers, learner, judges and people send, one event at a time. waits for: the next event.
produces: leases, rounds, weight updates, metrics. unblocked by: any event; every event is followed by one `_pump`,
which does all that has become possible. The ledger is written before anything leaves the process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import anyio

from stream_rl.config import Config
from stream_rl.errors import RoleDied
from stream_rl.messages import (
    AttachGenerator,
    AttachJudge,
    CheckpointSaved,
    DetachGenerator,
    DetachJudge,
    Finish,
    FromOrchestrator,
    GroupClosed,
    GroupRefused,
    LearnerReady,
    ListGenerators,
    ListJudges,
    ProducerReady,
    ProducerStats,
    Published,
    SaveCheckpoint,
    StatusReply,
    StatusRequest,
    ToOrchestrator,
    Trained,
    TrajectoryDone,
    Tune,
    WeightsFailed,
    WeightsLive,
)
from stream_rl.observe.loop_lag import LoopLag
from stream_rl.observe.rundir import RunDirectory
from stream_rl.orchestrator.accounts import HANDLING, Accounts, devices_of
from stream_rl.orchestrator.fleet import ProducerState
from stream_rl.orchestrator.gate import Gate
from stream_rl.orchestrator.guests import Guests
from stream_rl.orchestrator.inbox import Event, Inbox, Judged, Stalled, StopAsked, UpdateOverdue
from stream_rl.orchestrator.judging import JudgingStage
from stream_rl.orchestrator.ledger import Ledger
from stream_rl.orchestrator.outbox import Outboxes
from stream_rl.orchestrator.production import Production
from stream_rl.orchestrator.roster import Judges, Roster
from stream_rl.orchestrator.rounds import Rounds
from stream_rl.orchestrator.standing import in_words, standing
from stream_rl.orchestrator.state import Board, RunState
from stream_rl.orchestrator.tally import Tally
from stream_rl.orchestrator.tuning import Tuning
from stream_rl.orchestrator.validation import Validation
from stream_rl.orchestrator.weight_sync import WeightSync
from stream_rl.orchestrator.writer import LedgerWriter
from stream_rl.ports import Hub, Judge, PeerJoined, PeerLeft, Received
from stream_rl.rubrics.vocabulary import Vocabulary


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
        second_judge: Judge | None = None,
        judges: Judges | None = None,
        vocabulary: Vocabulary,
        board: Board,
        version: int = 0,
        loop_lag: LoopLag | None = None,
        embedded_judges: int = 0,
        cpu: Callable[[], dict[str, float]] | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Nothing runs yet.

        second_judge: gives second opinions, without a cache; None: `judge` does
        judges: who is asked, for attaching and detaching while the run goes on
        version: of the start policy, or of the checkpoint to go on from
        board: told what people see
        loop_lag: measured while the run goes on; None: not
        embedded_judges: judge processes that the run itself started, for the account of its devices
        cpu: CPU seconds since it was last asked, of this process and those judges, by role
        """
        self._hub = hub
        self._inbox = Inbox()
        self._judging: JudgingStage | None = None
        if judge:
            self._judging = JudgingStage(
                judge,
                second=second_judge,
                workers=judge_workers,
                required=config.judge.required,
                deliver=self._inbox.judged,
                trouble=self._judge_trouble,
                clock=clock,
            )
        self._judge_problem: str | None = None
        # A group leased S updates ahead is S updates old when it is trained: more than `max_lag` ahead is in vain.
        depth = min(config.async_depth, config.max_lag or config.async_depth)
        # Who makes way for a finished group ages by one update a round: more than `max_lag` is in vain, too.
        window = min(config.groups.window, config.lag_limit - depth + 1)
        gate = Gate(
            depth=depth,
            candidates=config.groups.candidates,
            last_round=max(config.updates, version),
            version=version,
            window=window,
        )
        self._loop_lag = loop_lag
        accounts = Accounts(
            devices_of(config, embedded_judges=embedded_judges),
            judging=self._judging,
            loop_lag=loop_lag,
            cpu=cpu,
            clock=clock,
        )
        self._state = RunState(
            config=config,
            run=run,
            ledger=LedgerWriter(ledger, accounts.actor),
            accounts=accounts,
            gate=gate,
            vocabulary=vocabulary,
            tags=judge is not None and (config.needs_tags or not config.needs_scores),
            board=board,
            outboxes=Outboxes(hub),
            tally=Tally({e.url: (e.price_in, e.price_out) for e in config.judge.endpoints}),
            clock=clock,
            wall=wall,
            checkpoint_version=version or -1,
        )
        self._validation = Validation(self._state)
        self._production = Production(self._state, self._judging, held=self._validation.awaited)
        self._rounds = Rounds(self._state, held=self._validation.awaited)
        self._weights = WeightSync(self._state, self._inbox.watch_update)
        self._roster = Roster(self._state, judges)
        self._guests = Guests(self._state)
        self._tuning = Tuning(self._state)

    def go_on_from(self, *, wall_s: float, train_s: float, evaluated: int) -> None:
        """Clocks and evaluations go on from where an earlier process of this run stopped."""
        self._state.wall_offset_s = wall_s
        self._state.train_offset_s = train_s
        self._validation.evaluated = evaluated

    async def run(self, stop: anyio.Event) -> None:
        """Serve until every update is trained and evaluated, or until `stop`. Raises `RoleDied` on a lost learner."""
        state = self._state
        async with self._inbox, anyio.create_task_group() as tasks:
            self._inbox.open(tasks, self._hub, stop, state)
            tasks.start_soon(state.outboxes.run)
            if self._judging:
                tasks.start_soon(self._judging.run)
            if self._loop_lag:
                tasks.start_soon(self._loop_lag.run)
            try:
                await self._roster.restore()
                await self._guests.restore()
                await self._tuning.restore()
                await self._production.restore()
                async for event in self._inbox:
                    with state.accounts.actor.during(HANDLING):
                        await self._handle(event)
                        await self._pump()
                    self._observe()
                    if state.finished:
                        break
            finally:
                if self._judging:
                    self._judging.close()
                state.outboxes.close()
            await state.outboxes.sent()
            tasks.cancel_scope.cancel()
        await state.ledger.close()

    def _judge_trouble(self, problem: str | None) -> None:
        self._judge_problem = problem
        self._state.waits_for_judge = problem is not None
        self._state.progress()
        self._state.event("judge", problem=problem)

    # one event

    async def _handle(self, event: Event) -> None:
        match event:
            case Received():
                await self._receive(event.peer, event.message)
                event.ack()  # what it carried is in the ledger
            case Judged():
                await self._production.take_answer(event.question, event.answer)
            case PeerJoined():
                self._state.outboxes.open(event.peer)
                if event.role == "producer":
                    self._state.fleet.by_peer[event.peer] = ProducerState(peer=event.peer, name=event.name)
            case PeerLeft():
                self._peer_left(event)
            case StopAsked():
                self._begin_stop(event.reason)
            case UpdateOverdue():
                self._weights.overdue(event.peer, event.version)
            case Stalled():
                limit = self._state.config.stall_s
                raise RoleDied(
                    f"no progress for {event.seconds:.0f} s (stall_s = {limit:g}): {in_words(self.status())}"
                )

    async def _receive(self, peer: str, message: ToOrchestrator) -> None:
        match message:
            case TrajectoryDone(purpose="eval"):
                await self._validation.take_trajectory(message)
            case TrajectoryDone():
                await self._production.take_trajectory(peer, message)
            case GroupClosed():
                await self._close_group(peer, message)
            case ProducerReady():
                self._weights.producer_ready(peer, message)
            case ProducerStats():
                if producer := self._state.fleet.by_peer.get(peer):
                    self._account(producer.name, message)
            case WeightsLive():
                self._weights.live(peer, message)
            case WeightsFailed():
                self._state.event("weights_failed", peer=peer, version=message.version, error=message.error)
            case LearnerReady():
                await self._rounds.learner_ready(peer, message)
            case GroupRefused():
                self._rounds.refused(peer, message)
                await self._production.refused(message.group_id, message.reason)
            case Trained():
                await self._rounds.trained(peer, message)
                self._production.trained()
                await self._production.save_memory()
            case Published():
                await self._rounds.published(peer, message)
            case CheckpointSaved():
                await self._rounds.checkpoint(message.version, message.path)
            case StatusRequest():
                self._state.outboxes.post(peer, StatusReply(status=self.status()))
            case Tune():
                self._state.outboxes.post(peer, await self._tuning.answer(message))
            case AttachGenerator() | DetachGenerator() | ListGenerators():
                self._state.outboxes.post(peer, await self._guests.answer(message))
            case AttachJudge() | DetachJudge() | ListJudges():
                self._state.outboxes.post(peer, await self._roster.answer(message))

    async def _close_group(self, peer: str, message: GroupClosed) -> None:
        group_id = message.group_id
        if producer := self._state.fleet.by_peer.get(peer):
            producer.leases.pop(group_id, None)
        self._state.progress()
        if self._validation.owns(group_id):
            self._validation.close_group(group_id)
        else:
            await self._production.close_group(peer, message)

    def _account(self, name: str, stats: ProducerStats) -> None:
        tally = self._state.tally
        tally.role_states(name, stats.states)
        tally.slot_states(name, stats.slots)
        for part, states in stats.parts.items():
            tally.role_states(f"{name}/{part}", states)
        tally.cpu(stats.cpu_s)

    def _observe(self) -> None:
        state = self._state
        state.accounts.observe(
            gate=state.gate,
            fleet=state.fleet,
            flights=state.flights,
            learner=state.learner is not None,
            inbox=self._inbox.waiting,
            outbox=state.outboxes.waiting,
        )

    def _peer_left(self, event: PeerLeft) -> None:
        state = self._state
        state.outboxes.drop(event.peer)
        if producer := state.fleet.by_peer.pop(event.peer, None):
            state.event("producer_left", name=producer.name, reason=event.reason, leases=len(producer.leases))
            for group_id in producer.leases:
                owner = self._validation if self._validation.owns(group_id) else self._production
                owner.lost(group_id)
        elif state.learner and state.learner.peer == event.peer:
            raise RoleDied(
                f"the learner left ({event.reason}) at version {state.learner.version}; "
                f"see {state.run.logs / 'learner-0.log'}, then go on with --resume {state.run.root}"
            )

    # all that has become possible

    async def _pump(self) -> None:
        self._weights.push()
        await self._weights.go_live()
        await self._validation.advance()
        self._weights.push()
        await self._rounds.make_way()
        await self._rounds.select()  # before leasing: it makes room in the buffer
        await self._production.lease()
        self._rounds.deliver()
        self._finish()
        self._state.set_phase()

    def _begin_stop(self, reason: str) -> None:
        if self._state.stopping is None:
            self._state.stopping = reason
            self._state.event("stopping", reason=reason)

    def _finish(self) -> None:
        """Stop in order: the update that is under way ends, a checkpoint is written, everybody is told."""
        state, learner = self._state, self._state.learner
        complete = state.gate.finished and state.evaluating is None and not self._validation.missing(state.gate.version)
        if state.stopping is None and not complete:
            return
        if learner and (learner.complete or learner.saving):
            return
        if learner and state.checkpoint_version != learner.version:
            learner.saving = True
            state.outboxes.post(learner.peer, SaveCheckpoint())
            return
        reason = state.stopping or "every update is trained"
        for peer in [*state.fleet.by_peer, *([learner.peer] if learner else [])]:
            state.outboxes.post(peer, Finish(reason=reason))
        state.finished = True
        state.event("finished", reason=reason, complete=complete, version=state.gate.version)

    def status(self) -> dict[str, Any]:
        """The run at this moment, as plain data."""
        return standing(
            self._state,
            line=self._rounds.last_line,
            evaluation=self._validation.last,
            alarms=self._rounds.alarms,
            judge_waiting=self._judging.waiting if self._judging else 0,
            judge_problem=self._judge_problem,
            judges=self._roster.standing(),
        )
