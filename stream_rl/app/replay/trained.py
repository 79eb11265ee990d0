"""What a selection trains, in means over updates. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stream_rl.orchestrator.flight import Flight


class TrainedFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Groups trained. None: a mean over nothing."""

    groups: int  # trained
    rollouts: int  # valid ones in them
    reward_mean: float | None  # of a rollout
    success: float | None  # share of rollouts that solved their task
    zero_variance: float | None  # share of groups whose outcomes are all equal: no advantage under plain GRPO
    response_tokens: float | None  # sampled by a rollout, mean
    rubrics: float | None  # rubrics shown or broken by some rollout of an update, mean over updates
    skills: float | None  # the skills they belong to, likewise


class TrainedSums:
    """Takes what each update trains, and keeps sums only."""

    def __init__(self) -> None:
        self._updates = self._groups = self._rollouts = self._flat = self._solved = self._tokens = 0
        self._reward = 0.0
        self._rubrics = self._skills = 0

    def add(self, flights: Sequence[Flight]) -> None:
        """Groups of one update. An update without any, as of a world that was not chosen, is none."""
        if not flights:
            return
        members = [t for flight in flights for t in flight.valid]
        self._updates += 1
        self._groups += len(flights)
        self._rollouts += len(members)
        self._reward += sum(t.reward for t in members)
        self._solved += sum(t.success for t in members)
        self._flat += sum(len({t.reward for t in flight.valid}) < 2 for flight in flights)
        self._tokens += sum(t.num_sampled_tokens for t in members)
        seen = {
            tag.rubric
            for flight in flights
            for verdict in flight.verdicts.values()
            for tag in verdict.tags
            if tag.value in ("positive", "violation")
        }
        self._rubrics += len(seen)
        self._skills += len({rubric.partition(".")[0] for rubric in seen})  # an id begins with its skill

    def facts(self) -> TrainedFacts:
        """What has been found."""
        return TrainedFacts(
            groups=self._groups,
            rollouts=self._rollouts,
            reward_mean=_mean(self._reward, self._rollouts),
            success=_mean(self._solved, self._rollouts),
            zero_variance=_mean(self._flat, self._groups),
            response_tokens=_mean(self._tokens, self._rollouts),
            rubrics=_mean(self._rubrics, self._updates),
            skills=_mean(self._skills, self._updates),
        )


def _mean(total: float, count: int) -> float | None:
    return total / count if count else None
