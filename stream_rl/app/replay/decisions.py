"""What one configuration decides about recorded groups: who is trained, hints, advantages. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from learner.advantages import Advantages, turn_advantages
from learner.members import member_of
from stream_rl.config import Config
from stream_rl.errors import LedgerError
from stream_rl.orchestrator.bundling import Bundling
from stream_rl.orchestrator.choosing import choose, hint_for
from stream_rl.orchestrator.flight import Flight


def choose_again(config: Config, flights: Sequence[Flight], *, round_: int) -> frozenset[str]:
    """The groups that are trained, of all candidates of round `round_`, one at least.

    With fewer candidates than `per_update` all are chosen.
    """
    everything = config.algorithm.selection == "all"
    count = len(flights) if everything else min(config.groups.per_update, len(flights))
    rubric_ids = rubrics_of(flights)
    return frozenset(choose(flights, count, config.algorithm, rubric_ids, seed=config.seed, round_=round_))


def hints(config: Config, flights: Iterable[Flight], rubric_ids: Sequence[str]) -> dict[str, tuple[str, ...] | None]:
    """What the teacher is told about each group. None: nothing, or the learner itself chooses."""
    bundling = Bundling(config)
    return {
        f.group_id: hint_for(dataclasses.replace(f, alignment=bundling.choose(f)), config.algorithm, rubric_ids)
        for f in flights
    }


def rubrics_of(flights: Iterable[Flight]) -> tuple[str, ...]:
    """The vocabulary a round was tagged by, in its order: every verdict names all of it."""
    return tuple(
        dict.fromkeys(tag.rubric for f in flights for t in f.valid if (v := f.verdicts.get(t.id)) for tag in v.tags)
    )


def turns_of(config: Config, flight: Flight) -> Advantages:
    """Advantages of all turns of a group's valid members, in member order, [turns].

    Before whatever a teacher adds to them token by token. Raises `LedgerError` for rewards nothing can be made of.
    """
    members = sorted(flight.trajectories.values(), key=lambda t: t.member)
    try:
        found = turn_advantages([member_of(t) for t in members], config.algorithm)
    except ValueError as error:
        raise LedgerError(f"group {flight.group_id}: no advantages can be made of its records: {error}") from None
    return np.concatenate([np.zeros(0), *(a for t, a in zip(members, found, strict=True) if t.valid)])
