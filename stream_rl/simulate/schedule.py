"""What will happen and when: the clock of a simulation."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Literal, NamedTuple

Kind = Literal["rollouts", "judged", "trained", "written", "live"]


class Due(NamedTuple):
    """Something that happens at `time_s`. Of things at one moment the one announced first comes first."""

    time_s: float
    order: int  # tie-breaker
    kind: Kind
    who: int  # producer, group or version, as `kind` says
    stamp: int  # void unless it is still that of the producer or the learner


class Schedule:
    """Events in order of time."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._queue: list[Due] = []
        self._announced = 0

    def at(self, time_s: float, kind: Kind, who: int, stamp: int = 0) -> None:
        """Announce an event."""
        self._announced += 1
        heappush(self._queue, Due(time_s, self._announced, kind, who, stamp))

    def next(self) -> Due:
        """The next event; it is that late now."""
        due = heappop(self._queue)
        self.now_s = due.time_s
        return due
