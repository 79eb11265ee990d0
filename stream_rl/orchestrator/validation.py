"""Held-out validation inside a run: when it is due, its leases, its result.

consumes: live versions. waits for: producers with room. produces: evaluation leases without guidance, eval lines.
unblocked by: a version going live; a group of it closing.
"""

from __future__ import annotations

from typing import Any

from stream_rl.messages import EvalLease, TrajectoryDone
from stream_rl.observe.rundir import append_json
from stream_rl.orchestrator.evaluation import Evaluation
from stream_rl.orchestrator.ledger import Ledger
from stream_rl.orchestrator.state import RunState
from stream_rl.orchestrator.tasks import evaluation_tasks, stable_seed


class Validation:
    """Owns the running evaluation. `evaluated` is the newest version whose evaluation is over."""

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._running: Evaluation | None = None
        self.evaluated = -1
        self.last: dict[str, Any] | None = None

    def awaited(self, version: int) -> bool:
        """Whether a version has to be evaluated, and was not yet.

        Until it was, the learner is not given the round that follows it, and once it is live no training group is
        leased. So no version that has to be evaluated is skipped, and an evaluation, which the training clock leaves
        out, has the machine to itself: nothing is generated or trained beside it for free.
        """
        return self._state.stopping is None and self.missing(version)

    def missing(self, version: int) -> bool:
        """Whether a version has to be evaluated and was not, whatever the run is about to do."""
        state, every = self._state, self._state.config.eval.every
        if every == 0 or version <= self.evaluated:
            return False
        return version % every == 0 or version == state.config.updates

    def due(self) -> bool:
        """Whether the live version is awaited, everybody is there to evaluate it, and no training group runs."""
        state = self._state
        version = state.gate.version
        idle = state.fleet.running == 0
        return self.awaited(version) and state.started and state.fleet.all_at(version) and idle

    async def advance(self) -> None:
        """End a finished evaluation, begin one that is due, lease what has room."""
        state = self._state
        if self._running and self._running.done:
            self._end(self._running)
        if self._running is None and self.due():
            names = tuple(e.name for e in state.config.environments)
            tasks = evaluation_tasks(names, state.config.eval.tasks, state.fleet.num_held_out)
            self._running = Evaluation(state.gate.version, tasks, state.config.eval.rollouts)
            state.evaluating = self._running.version
        if self._running and state.stopping is None:
            await self._lease(self._running)

    async def _lease(self, evaluation: Evaluation) -> None:
        state = self._state
        size = evaluation.rollouts
        while evaluation.waiting and (producer := state.fleet.choose(size, version=evaluation.version)):
            group_id = evaluation.waiting.popleft()
            evaluation.running.add(group_id)
            producer.leases[group_id] = size
            await state.ledger.do(Ledger.drop_group, group_id)
            task = evaluation.task(group_id)
            limits = state.config.limits(task.environment)
            lease = EvalLease(
                group_id=group_id,
                task=task,
                size=size,
                seed=stable_seed(state.config.seed + evaluation.version, task.environment, "held_out", task.index),
                temperature=state.config.eval.temperature,
                max_tokens=limits.max_tokens,
                max_turns=limits.max_turns,
                deadline_s=state.config.groups.deadline_s,
            )
            state.outboxes.post(producer.peer, lease)

    async def take_trajectory(self, message: TrajectoryDone) -> None:
        """Keep one rollout of the running evaluation."""
        trajectory = message.trajectory
        if self.owns(trajectory.group_id) and self._running:
            await self._state.ledger.do(Ledger.add_trajectory, trajectory, "eval")
            self._running.add(trajectory)

    def owns(self, group_id: str) -> bool:
        """Whether a lease belongs to the running evaluation."""
        return self._running is not None and group_id in self._running.running

    def close_group(self, group_id: str) -> None:
        """All rollouts of one task are in."""
        if self._running:
            self._running.running.discard(group_id)

    def lost(self, group_id: str) -> None:
        """Its producer is gone: roll it out again."""
        if self._running:
            self._running.lost(group_id)

    def _end(self, evaluation: Evaluation) -> None:
        state = self._state
        self._running = None
        state.evaluating = None
        self.evaluated = evaluation.version
        self.last = {"step": evaluation.version, **evaluation.summary(), **state.times()}
        append_json(state.run.eval, self.last)
        state.board({"type": "eval", **self.last})
