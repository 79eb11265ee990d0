"""How full queues are and how many permits are taken: time-weighted means between two metrics lines. Pure."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import msgspec


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """One level over a stretch of time."""

    integral: float  # level times seconds
    largest: float  # most it was at any moment
    seconds: float  # the stretch

    @property
    def mean(self) -> float:
        """Time-weighted; over no time at all, the largest."""
        return self.integral / self.seconds if self.seconds > 0 else self.largest


class Levels:
    """Levels that change at moments and stay in between.

    >>> now = 0.0
    >>> levels = Levels(lambda: now)
    >>> levels.set({"queue": 4}); now = 1.0; levels.set({"queue": 0}); now = 4.0
    >>> levels.lap()["queue"].mean
    1.0
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since = self._began = clock()
        self._now: dict[str, float] = {}
        self._integral: dict[str, float] = {}
        self._largest: dict[str, float] = {}

    @property
    def now(self) -> dict[str, float]:
        """Each level at this moment."""
        return dict(self._now)

    def set(self, levels: Mapping[str, float]) -> None:
        """From now on these levels hold. One that was never set before was 0 until now."""
        self._settle()
        for name, level in levels.items():
            self._now[name] = level
            self._integral.setdefault(name, 0.0)
            self._largest[name] = max(level, self._largest.get(name, level))

    def lap(self) -> dict[str, Level]:
        """Each level since the last lap (the first time: since construction)."""
        self._settle()
        seconds = self._since - self._began
        lap = {
            name: Level(integral=self._integral[name], largest=self._largest[name], seconds=seconds)
            for name in self._now
        }
        self._began = self._since
        self._integral = dict.fromkeys(self._now, 0.0)
        self._largest = dict(self._now)
        return lap

    def _settle(self) -> None:
        now = self._clock()
        for name, level in self._now.items():
            self._integral[name] += level * (now - self._since)
        self._since = now
