"""Rounds: candidates become a selection, a selection is delivered, an update comes back.

consumes: candidates, the learner's reports. waits for: a complete round; the learner. produces: rounds, metrics lines.
unblocked by: the last candidate of a round; the learner asking for the next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from stream_rl.errors import RoleDied
from stream_rl.messages import GroupRefused, LearnerReady, Published, RoundStart, SelectedGroup, Trained
from stream_rl.observe.alarms import AlarmWatch
from stream_rl.observe.rundir import append_json
from stream_rl.orchestrator.choosing import choose, hint_for
from stream_rl.orchestrator.flight import Flight
from stream_rl.orchestrator.learning import LearnerState, attribute_waits, judge_wait, no_training
from stream_rl.orchestrator.ledger import Ledger
from stream_rl.orchestrator.state import RunState
from stream_rl.orchestrator.window import READY, exchanges
from stream_rl.rubrics.guidance import criteria_text, hint_text


class Rounds:
    """Owns what has been said about updates: the last line and the alarms."""

    def __init__(self, state: RunState, held: Callable[[int], bool]) -> None:
        """`held(version)`: the round that starts from this version must not be delivered yet."""
        self._state = state
        self._held = held
        self._watch = AlarmWatch(state.config.alarms, distillation=state.config.algorithm.distillation)
        self.last_line: dict[str, Any] = {}
        self.alarms: list[dict[str, Any]] = []

    async def learner_ready(self, peer: str, message: LearnerReady) -> None:
        """The learner is up. Raises `RoleDied` when it started elsewhere than the ledger did."""
        state = self._state
        if message.version != state.gate.version:
            raise RoleDied(
                f"the learner starts at version {message.version}, the ledger at {state.gate.version}: "
                "they come from different checkpoints"
            )
        await state.ledger.do(Ledger.publish, message.manifest, live=True)
        state.manifest = message.manifest
        self._wait_for_round(peer, message.version)
        state.progress()
        state.event("learner_ready", version=message.version)

    def _wait_for_round(self, peer: str, version: int) -> None:
        state = self._state
        state.learner = LearnerState(
            peer=peer,
            version=version,
            idle_since_s=state.clock(),
            idle_since_phases=state.phase.snapshot(),
        )

    async def make_way(self) -> None:
        """Where groups may move and the learner waits: finished ones of later rounds take the places of stragglers."""
        state, learner = self._state, self._state.learner
        if state.config.groups.window == 1 or learner is None or learner.complete:
            return
        gate, round_ = state.gate, learner.version
        if not gate.is_full(round_):
            return
        later = [f for r in range(round_ + 1, round_ + state.config.groups.window) for f in state.round(r)]
        pairs = exchanges(state.round(round_), later, lambda flight, to: gate.may_move(flight.group_id, to))
        if not pairs:
            return
        moves = {}
        for straggler, finished in pairs:
            moves[straggler.group_id], moves[finished.group_id] = finished.row.round, straggler.row.round
        await state.ledger.do(Ledger.move, moves, state.wall())
        for straggler, finished in pairs:
            gate.exchange(straggler.group_id, finished.group_id)
            for flight in (straggler, finished):
                flight.row = msgspec.structs.replace(flight.row, round=moves[flight.group_id])
        state.tally.deferred += len(pairs)

    def _closing(self) -> tuple[int, ...]:
        """Rounds that may be closed now. With a window only the next one: a closed round lends nobody a group."""
        gate, learner = self._state.gate, self._state.learner
        if self._state.config.groups.window == 1:
            return gate.rounds
        return () if learner is None else (learner.version,)

    async def select(self) -> None:
        """Close every round whose candidates are all there; with 'all', pass each candidate on at once.

        A round that was closed and had a group refused is closed again by the candidates that took such places.
        """
        gate, algorithm = self._state.gate, self._state.config.algorithm
        for round_ in self._closing():
            flights = self._state.round(round_)
            candidates = [f for f in flights if f.stage == "candidate"]
            complete = gate.is_full(round_) and all(f.stage in READY for f in flights)
            if candidates and (complete or algorithm.selection == "all"):
                await self._close(round_, candidates)

    async def _close(self, round_: int, candidates: list[Flight]) -> None:
        state, algorithm = self._state, self._state.config.algorithm
        count = state.config.groups.per_update - sum(f.stage == "selected" for f in state.round(round_))
        if algorithm.selection == "all" or len(candidates) == count:
            chosen = {f.group_id for f in candidates}
        else:
            seed = state.config.seed
            chosen = set(choose(candidates, count, algorithm, state.rubric_ids, seed=seed, round_=round_))
        hints = {f.group_id: hint_for(f, algorithm, state.rubric_ids) for f in candidates if f.group_id in chosen}
        dropped = [f.group_id for f in candidates if f.group_id not in chosen]
        await state.ledger.do(Ledger.select, round_, hints, dropped, state.wall())
        for flight in candidates:
            flight.stage = "selected" if flight.group_id in chosen else "unselected"
            flight.hint = hints.get(flight.group_id)
            flight.stamps.selected = state.made

    def deliver(self) -> None:
        """Send the learner what is selected for the round it waits for."""
        state, learner = self._state, self._state.learner
        if learner is None or learner.complete or self._held(learner.version) or state.gate.finished:
            return
        if state.stopping is not None and not learner.started:
            return
        count = state.config.groups.per_update
        round_ = state.round(learner.version)
        for flight in round_:
            if flight.stage != "selected" or flight.group_id in learner.delivered:
                continue
            if not learner.started:
                learner.started = True
                state.outboxes.post(learner.peer, RoundStart(update=learner.version, num_groups=count))
            learner.delivered.append(flight.group_id)
            state.outboxes.post(learner.peer, self._message(flight))
        if len(learner.delivered) == count:
            learner.complete = True
            learner.judge_wait_s = judge_wait(round_, learner.idle_since_s)
            learner.no_training_s = no_training(learner.idle_since_phases, state.phase.snapshot())

    def _message(self, flight: Flight) -> SelectedGroup:
        return SelectedGroup(
            update=flight.row.round,
            group_id=flight.group_id,
            trajectories=tuple(sorted(flight.trajectories.values(), key=lambda t: t.member)),
            hint=self._hint_text(flight.hint) if flight.hint else None,
            hint_rubrics=flight.hint or (),
            alternatives=self._alternatives(flight),
            judge_s=flight.judged_s - flight.produced_s,
        )

    def _alternatives(self, flight: Flight) -> tuple[str, ...]:
        """Hints the learner chooses from, where the choice needs the policy's own log-likelihoods."""
        if not self._state.config.learner_chooses or flight.offer is None:
            return ()
        return tuple(criteria_text(bundle) for bundle in flight.offer.bundles)

    def _hint_text(self, hint: tuple[str, ...]) -> str:
        if self._state.config.algorithm.rubrics == "written":
            return criteria_text(hint)
        return hint_text(self._state.vocabulary, hint)

    def refused(self, peer: str, message: GroupRefused) -> None:
        """The learner will not train a group of its round, and waits for another. Nothing is trained before that."""
        learner = self._state.learner
        if learner is None or peer != learner.peer or message.update != learner.version:
            raise RoleDied(f"the learner refuses {message.group_id} of update {message.update}, not its round")
        if message.group_id not in learner.delivered:
            raise RoleDied(f"the learner refuses {message.group_id}, which it was not sent for update {message.update}")
        learner.delivered.remove(message.group_id)
        learner.complete = False
        self._state.progress()

    async def trained(self, peer: str, message: Trained) -> None:
        """An update is done: its groups are trained, its numbers become a metrics line."""
        state, learner = self._state, self._state.learner
        if learner is None or peer != learner.peer or message.update != learner.version:
            raise RoleDied(f"the learner reports update {message.update}, which was not its round")
        if set(message.group_ids) != set(learner.delivered):
            raise RoleDied(
                f"the learner trained update {message.update} with {sorted(message.group_ids)}; "
                f"it was sent {sorted(learner.delivered)}"
            )
        await state.ledger.do(Ledger.train, message.update, message.group_ids, state.wall())
        round_ = state.round(message.update)
        for flight in round_:
            if flight.stage == "unselected":
                state.tally.discard(flight, "not_selected")
        metrics = dict(message.metrics)
        metrics["learner"], others = attribute_waits(
            metrics.get("learner", {}), judge_wait_s=learner.judge_wait_s, no_training_s=learner.no_training_s
        )
        metrics["learner_other"] = {**metrics.get("learner_other", {}), **others}
        trained = [f for f in round_ if f.group_id in set(message.group_ids)]
        line = state.tally.line(step=message.update, candidates=round_, trained=trained, learner=metrics)
        self._write({**state.accounts.merged(line), "async_depth": state.depth})
        self._wait_for_round(peer, message.version)
        if message.checkpoint:
            await self.checkpoint(message.version, message.checkpoint)
        state.progress()

    async def published(self, peer: str, message: Published) -> None:
        """The weights of an update are there for the generators. The learner may be at a later round by now."""
        state, learner, version = self._state, self._state.learner, message.manifest.version
        if learner is None or peer != learner.peer or version > learner.version:
            raise RoleDied(f"version {version} was published, which no update made that was reported")
        await state.ledger.do(Ledger.publish, message.manifest, live=False)
        state.manifest = message.manifest
        state.tally.role_states("weights", {"write_s": message.write_s})
        state.progress()

    def _write(self, numbers: dict[str, Any]) -> None:
        state = self._state
        line = {**numbers, **state.times()}
        alarms = self._watch.observe(line)
        line["alarms"] = [alarm.name for alarm in alarms]
        append_json(state.run.metrics, line)
        self.last_line = line
        state.board({"type": "update", **line})
        for alarm in alarms:
            self.alarms.append(msgspec.to_builtins(alarm))
            state.event("alarm", **self.alarms[-1])

    async def checkpoint(self, version: int, path: str) -> None:
        """The learner wrote a checkpoint."""
        state = self._state
        await state.ledger.do(Ledger.add_checkpoint, version, path)
        state.checkpoint_version = version
        state.event("checkpoint", version=version, path=path)
        if state.learner:
            state.learner.saving = False
