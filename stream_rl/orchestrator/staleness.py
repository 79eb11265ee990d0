"""Where a trained group's lag arose. Pure.

Each of the updates between a group's oldest token and its training was made at one moment, and the group was in one
phase of its life at that moment. So the updates counted by phase add up to the lag.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

ORIGINS = ("sync", "generation", "judge", "buffer", "learner")


@dataclass(kw_only=True)
class Stamps:
    """Newest version the learner had made when a group passed from one phase to the next; None: nobody saw it pass."""

    leased: int | None = None  # its lease was issued
    produced: int | None = None  # its last rollout ended
    judged: int | None = None  # its last verdict came
    selected: int | None = None  # it was selected


def origins(oldest: int, stamps: Stamps, trained: int) -> dict[str, int]:
    """Updates by the phase they were made in, over `ORIGINS`; they add up to `trained` - `oldest`.

    sync: before the lease, by a generator that had not loaded them yet
    generation: from lease to last rollout
    judge: from there to the last verdict
    buffer: from there to selection, while other groups of the round were missing
    learner: from there to the round that trains it

    oldest: version of the group's oldest token
    trained: version whose parameters it trains, not below `oldest`

    What passed unseen (in an earlier process of the run) counts to the next phase that was seen.

    >>> origins(3, Stamps(leased=3, produced=3, judged=4, selected=4), 5)
    {'sync': 0, 'generation': 0, 'judge': 1, 'buffer': 0, 'learner': 1}
    """
    out, reached = {}, oldest
    passed = (stamps.leased, stamps.produced, stamps.judged, stamps.selected, trained)
    for origin, stamp in zip(ORIGINS, passed, strict=True):
        now = reached if stamp is None else min(max(reached, stamp), trained)
        out[origin] = now - reached
        reached = now
    return out


def histograms(groups: Iterable[dict[str, int]]) -> dict[str, dict[str, int]]:
    """origin -> updates -> groups, as a metrics line holds them. Empty without a group."""
    counts = {origin: Counter[int]() for origin in ORIGINS}
    for group in groups:
        for origin, updates in group.items():
            counts[origin][updates] += 1
    return {
        origin: {str(updates): groups for updates, groups in sorted(found.items())}
        for origin, found in counts.items()
        if found
    }
