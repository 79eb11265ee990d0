"""From a complete round to the groups that are trained, with their hints. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stream_rl.config import Algorithm
from stream_rl.orchestrator.flight import Flight
from stream_rl.orchestrator.selection import (
    Candidate,
    select_all,
    select_mmr,
    select_random,
    select_reward_variance,
    select_rised,
)
from stream_rl.rubrics.profile import GroupProfile, hint_rubrics, profile


def flight_profile(flight: Flight, rubric_ids: Sequence[str]) -> GroupProfile:
    """Tag rates of a group's valid members, in member order."""
    verdicts = [flight.verdicts[t.id] for t in flight.valid if t.id in flight.verdicts]
    return profile(verdicts, rubric_ids)


def choose(
    flights: Sequence[Flight], count: int, algorithm: Algorithm, rubric_ids: Sequence[str], *, seed: int, round_: int
) -> list[str]:
    """Ids of the `count` groups to train, sorted. `flights` are all candidates of round `round_`."""
    candidates = [
        Candidate(
            group_id=f.group_id,
            environment=f.row.task.environment,
            vector=flight_profile(f, rubric_ids).vector if rubric_ids else np.zeros(0),
            reward_std=f.reward_std,
        )
        for f in flights
    ]
    match algorithm.selection:
        case "all":
            return select_all(candidates, count)
        case "random":
            return select_random(candidates, count, seed=seed * 1_000_003 + round_)
        case "reward_variance":
            return select_reward_variance(candidates, count)
        case "mmr":
            return select_mmr(candidates, count, redundancy=algorithm.redundancy)
        case "rised":
            return select_rised(candidates, count, redundancy=algorithm.redundancy, rotation=round_)


def hint_for(flight: Flight, algorithm: Algorithm, rubric_ids: Sequence[str]) -> tuple[str, ...] | None:
    """Rubric ids, or written criteria, the teacher is told for this group; None: no teacher pass for it."""
    if algorithm.distillation == "none":
        return None
    if algorithm.rubrics == "written":
        return written_hint(flight)
    found = hint_rubrics(
        flight_profile(flight, rubric_ids), rubric_ids, support=algorithm.hint_support, top_k=algorithm.hint_top_k
    )
    return found or None


def written_hint(flight: Flight) -> tuple[str, ...] | None:
    """The criteria of the bundle that was chosen for this group; None when none aligned."""
    if flight.offer is None or flight.alignment is None or flight.alignment.index is None:
        return None
    return flight.offer.bundles[flight.alignment.index]
