"""Training groups from lease to candidate: admission, rollouts as they come, verdicts, discards.

consumes: free permits, trajectories, verdicts. waits for: producers with room, judges. produces: leases, candidates.
unblocked by: a round going live, a group closing, a verdict.
"""

from __future__ import annotations

import hashlib
import math
from collections import deque
from collections.abc import Callable

from stream_rl.errors import RoleDied
from stream_rl.messages import GroupClosed, TrainLease, TrajectoryDone
from stream_rl.orchestrator.bundling import Bundling
from stream_rl.orchestrator.choosing import flight_profile
from stream_rl.orchestrator.flight import Flight
from stream_rl.orchestrator.judging import Answer, JudgingStage, Question
from stream_rl.orchestrator.ledger import GroupRow, Ledger
from stream_rl.orchestrator.rerolls import Rerolls, reroll
from stream_rl.orchestrator.staleness import Stamps
from stream_rl.orchestrator.state import RunState
from stream_rl.orchestrator.tasks import TaskStream
from stream_rl.rubrics.steering import Steering
from stream_rl.types import Trajectory, Verdict, Writing

_FAILURES_IN_A_ROW = 4  # rounds' worth of discarded groups without one good group between them


class Production:
    """Owns the task order, steering rates, the groups that wait to be leased again, and the re-rolls that are owed."""

    def __init__(self, state: RunState, judging: JudgingStage | None, held: Callable[[int], bool]) -> None:
        """`held(version)`: no training group may be leased while this version is live."""
        config = state.config
        self._state = state
        self._held = held
        self._judging = judging
        self._tickets = TaskStream({e.name: e.share for e in config.environments}, config.seed)
        self._again: deque[str] = deque()
        self._rerolls = Rerolls()
        self._failures = 0
        self._refusals = 0
        self._bundling = Bundling(config)
        self.steering = {
            e.name: Steering(
                len(state.vocabulary.rubrics),
                rate=config.algorithm.steering_rate,
                floor=config.algorithm.steering_floor,
                top=config.algorithm.steering_top,
            )
            for e in config.environments
        }

    async def lease(self) -> None:
        """Issue every lease that gate, producers and the state of the run allow."""
        state = self._state
        if self._held(state.gate.version) or state.stopping is not None or state.paused or not state.started:
            return
        if state.config.weights.mode == "drain" and state.behind:
            return
        size = state.config.groups.size
        while producer := state.fleet.choose(size, version=state.gate.version):
            flight = await self._next()
            if flight is None:
                return
            flight.stage = "leased"
            flight.producer = producer.peer
            flight.stamps = Stamps(leased=state.made)
            producer.leases[flight.group_id] = size
            limits = state.config.limits(flight.row.task.environment)
            lease = TrainLease(
                group_id=flight.group_id,
                task=flight.row.task,
                size=size,
                seed=flight.row.seed,
                temperature=state.config.generate.temperature,
                max_tokens=limits.max_tokens,
                max_turns=limits.max_turns,
                deadline_s=state.config.groups.deadline_s,
                guidance=flight.row.guidance,
                bundles=state.config.written_bundles,
            )
            state.outboxes.post(producer.peer, lease)

    async def _next(self) -> Flight | None:
        """A group to lease: one whose producer is gone, or a new one where a round has a free place.

        A place that a discarded group left is filled by its re-roll, which takes no ticket: the next world's task goes
        where it would have gone, and every world keeps its share.
        """
        state = self._state
        if flight := self._next_again():
            await state.ledger.do(Ledger.lease_again, flight.group_id, state.wall())
            return flight
        round_ = state.gate.open_round
        if round_ is None or (round_ > state.gate.version and self._buffered() >= state.buffer):
            return None  # the round the learner needs next is filled whatever waits, so a full buffer cannot lock
        before = self._rerolls.take(round_)
        row = self._new_row(round_, before)
        await state.ledger.do(Ledger.lease, row, state.wall())
        state.gate.admit(row.group_id)
        if before is not None and before.task != row.task:
            state.event("task_given_up", task=before.task.id, group=before.group_id, instead=row.task.id)
        flight = Flight(row=row, stage="leased")
        state.flights[row.group_id] = flight
        return flight

    def _new_row(self, round_: int, before: GroupRow | None) -> GroupRow:
        """The group that takes a free place of a round. `before`: the discarded one that left it; None: nobody did."""
        state = self._state
        again = None if before is None else reroll(before, state.config.seed)
        ticket = self._tickets.take() if again is None else again.ticket
        steering = self.steering[ticket.task.environment]
        algorithm = state.config.algorithm
        guided = algorithm.steering and state.tags and is_steered(ticket.position, algorithm.steering_share)
        return GroupRow(
            group_id=f"g{ticket.position:06d}" + (f"r{again.number}" if again else ""),
            position=ticket.position,
            round=round_,
            task=ticket.task,
            seed=ticket.seed,
            guidance=steering.avoid(state.rubric_ids) if guided else (),
            state="leased",
            attempts=1,
            admitted=round_,
            reroll_of=before.group_id if before else None,
            reroll=again.number if again else 0,
        )

    def _next_again(self) -> Flight | None:
        """A group whose producer is gone. After a fall back to a checkpoint its round may not be open yet."""
        last_open = self._state.gate.version + self._state.depth
        for group_id in self._again:
            if self._state.flights[group_id].row.round <= last_open:
                self._again.remove(group_id)
                return self._state.flights[group_id]
        return None

    def _buffered(self) -> int:
        """Judged groups that wait for their round to be selected and delivered."""
        version = self._state.gate.version
        waiting = ("candidate", "selected")
        return sum(f.stage in waiting and f.row.round > version for f in self._state.flights.values())

    async def take_trajectory(self, peer: str, message: TrajectoryDone) -> None:
        """Keep one rollout. One of a lease that is somebody else's by now, or a duplicate, is ignored."""
        state, trajectory = self._state, message.trajectory
        flight = state.flights.get(trajectory.group_id)
        if flight is None or flight.producer != peer or trajectory.id in flight.trajectories:
            return
        await state.ledger.do(Ledger.add_trajectory, trajectory, "train")
        flight.trajectories[trajectory.id] = trajectory
        state.tally.trajectory(trajectory)
        state.progress()
        if trajectory.valid:
            self._ask_tags(trajectory)

    def _ask_tags(self, trajectory: Trajectory) -> None:
        if self._judging and self._state.tags:
            self._judging.submit(Question(trajectory=trajectory))

    def _ask_scores(self, flight: Flight) -> None:
        """Scores are asked once the group is whole: its criteria tell its own rollouts apart."""
        if self._judging and flight.offer:
            for trajectory in flight.unscored:
                self._judging.submit(Question(trajectory=trajectory, criteria=flight.offer.criteria))

    async def close_group(self, peer: str, message: GroupClosed) -> None:
        """All rollouts of a lease are in, and what the policy wrote about them."""
        state, group_id = self._state, message.group_id
        flight = state.flights.get(group_id)
        if flight is None or flight.producer != peer:
            return
        flight.producer = None
        state.tally.rerolled(message.rerolled, message.rerolled_tokens)
        flight.produced_s = flight.judged_s = state.clock()
        flight.stamps.produced = state.made
        if state.config.needs_bundles:
            writing = message.written or Writing(bundles=(), error="the producer wrote nothing")
            state.tally.writing(writing)
            if writing.error:
                state.event("nothing_written", group=group_id, error=writing.error)
            flight.offer = self._bundling.offer(flight, writing)
        await state.ledger.do(Ledger.produce, group_id, flight.offer, state.wall())
        await self._settle(flight)

    async def _settle(self, flight: Flight) -> None:
        """A produced group is discarded for a reason, or goes on to its verdicts."""
        flight.stage = "produced"
        if len(flight.valid) < self._state.config.min_valid:
            await self._discard(flight, "too_few_valid")
        elif flight.lag > self._state.config.lag_limit:
            await self._discard(flight, "stale")
        else:
            self._ask_scores(flight)
            await self._judge_done(flight)

    async def take_answer(self, question: Question, answer: Answer) -> None:
        """Keep one answer, unless its group was discarded or leased again while this very rollout was judged."""
        state, trajectory = self._state, question.trajectory
        state.tally.judged(answer)
        state.progress()
        flight = state.flights.get(trajectory.group_id)
        if flight is None or flight.trajectories.get(trajectory.id) is not trajectory:
            return
        if isinstance(answer, Verdict) and question.again:
            await state.ledger.do(Ledger.add_second_verdict, answer)
            return
        if isinstance(answer, Verdict):
            await state.ledger.do(Ledger.add_verdict, answer)
            flight.verdicts[answer.trajectory_id] = answer
            if self._judging and is_sampled(trajectory.id, state.config.judge.second_share) and not answer.abstained:
                self._judging.submit(Question(trajectory=trajectory, again=True))
        else:
            await state.ledger.do(Ledger.add_scores, answer)
            flight.scores[answer.trajectory_id] = answer
        await self._judge_done(flight)

    async def _judge_done(self, flight: Flight) -> None:
        """Make a produced group a candidate once no answer is missing."""
        state = self._state
        if flight.stage != "produced" or (state.tags and flight.unjudged) or (self._judging and flight.unscored):
            return
        flight.alignment = self._bundling.choose(flight)
        self._bundling.learn(flight)
        flight.judged_s = state.clock()
        flight.stamps.judged = state.made
        await state.ledger.do(Ledger.advance_all, flight.group_id, ("judged", "candidate"), state.wall())
        flight.stage = "candidate"
        self._failures = 0
        state.progress()
        if state.tags:
            self.steering[flight.row.task.environment].observe(flight_profile(flight, state.rubric_ids))

    async def refused(self, group_id: str, reason: str) -> None:
        """The learner will not train a group that was selected. Raises `RoleDied` when it refuses without end."""
        self._refusals += 1
        await self._discard(self._state.flights[group_id], reason)
        if self._refusals >= _FAILURES_IN_A_ROW * self._state.config.groups.candidates:
            raise RoleDied(
                f"the learner refused {self._refusals} groups and trained none between them, the last because: {reason}"
            )

    def trained(self) -> None:
        """An update is done: the learner does not refuse everything."""
        self._refusals = 0

    async def _discard(self, flight: Flight, reason: str) -> None:
        """Give its permit back, for a counted reason; its place in the round opens again, and is owed a re-roll."""
        state = self._state
        await state.ledger.do(Ledger.discard, flight.group_id, reason, state.wall())
        state.gate.discard(flight.group_id)
        del state.flights[flight.group_id]
        self._rerolls.owe(flight.row)
        state.tally.discard(flight, reason)
        errors = sorted({t.error for t in flight.trajectories.values() if t.error})
        state.event("discarded", group=flight.group_id, reason=reason, errors=errors[:3])
        self._failures += 1
        if self._failures >= _FAILURES_IN_A_ROW * state.config.groups.candidates:
            last = errors[0] if errors else "no error was reported"
            raise RoleDied(f"{self._failures} groups in a row were discarded, the last as {reason}: {last}")

    def lost(self, group_id: str) -> None:
        """Its producer is gone: what it sent is dropped, and the group is leased again."""
        if flight := self._state.flights.get(group_id):
            self._state.tally.lost(flight)
            flight.stage = "waiting"
            flight.producer = None
            flight.forget()
            self._again.append(group_id)

    # after a restart

    async def restore(self) -> None:
        """Take over what an earlier process of this run left in the ledger."""
        state = self._state
        rows = await state.ledger.do(Ledger.groups, from_round=state.gate.version)
        self._tickets.skip(await state.ledger.do(Ledger.next_position))
        for row in await state.ledger.do(Ledger.owed):
            self._rerolls.owe(row)
        for name, steering in self.steering.items():
            steering.restore(await state.ledger.do(Ledger.get, f"steering/{name}"))
        self._bundling.restore({key: await state.ledger.do(Ledger.get, key) for key in self._bundling.keys})
        kept = [row for row in rows if row.round < state.config.updates]
        for row in kept:
            state.gate.restore(row.group_id, row.round, row.admitted)
            await self._restore_group(row)
        for row in (r for r in rows if r.round >= state.config.updates):  # the run was made shorter
            await state.ledger.do(Ledger.discard, row.group_id, "past_the_end", state.wall())
        for row in await state.ledger.do(Ledger.unselected, from_round=state.gate.version):
            if row.round < state.config.updates:
                state.gate.restore(row.group_id, row.round, row.admitted)
                flight = await self._load(row)
                flight.alignment = self._bundling.choose(flight)
                flight.stage = "unselected"

    async def _restore_group(self, row: GroupRow) -> None:
        """Put one group where its walk stopped."""
        if row.state == "leased":
            self._state.flights[row.group_id] = Flight(row=row, stage="waiting")
            self._again.append(row.group_id)
            return
        flight = await self._load(row)
        if row.state == "selected":
            flight.alignment = self._bundling.choose(flight)  # told in the round's line
            flight.stage, flight.hint = "selected", row.hint
        elif row.state == "produced":
            for trajectory in flight.unjudged:
                self._ask_tags(trajectory)
            await self._settle(flight)
        else:
            if row.state == "judged":
                await self._state.ledger.do(Ledger.advance, row.group_id, "candidate", self._state.wall())
            flight.alignment = self._bundling.choose(flight)
            flight.stage = "candidate"

    async def _load(self, row: GroupRow) -> Flight:
        ledger = self._state.ledger
        flight = Flight(row=row, stage="produced")
        flight.trajectories = {t.id: t for t in await ledger.do(Ledger.trajectories, row.group_id)}
        flight.verdicts = {v.trajectory_id: v for v in await ledger.do(Ledger.verdicts, row.group_id)}
        flight.scores = {s.trajectory_id: s for s in await ledger.do(Ledger.scores, row.group_id)}
        flight.offer = await ledger.do(Ledger.offer, row.group_id)
        self._state.flights[row.group_id] = flight
        return flight

    async def save_memory(self) -> None:
        """Keep moving rates and rubric banks for a restart."""
        for key, text in self._bundling.states():
            await self._state.ledger.do(Ledger.put, key, text)
        for name, steering in self.steering.items():
            await self._state.ledger.do(Ledger.put, f"steering/{name}", steering.state())


def is_sampled(trajectory_id: str, share: float) -> bool:
    """Whether this trajectory belongs to the share that is judged twice: fixed by its id, whoever asks."""
    draw = int.from_bytes(hashlib.blake2b(trajectory_id.encode(), digest_size=4).digest(), "big")
    return draw < share * 2**32


def is_steered(position: int, share: float) -> bool:
    """Whether the group at this place of the task order belongs to the steered share; evenly spread, resumable."""
    return math.floor((position + 1) * share) > math.floor(position * share)
