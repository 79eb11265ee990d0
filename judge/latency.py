"""How long an endpoint takes to answer. Pure: the caller brings the clock."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque

WINDOW = 100  # answered requests the percentiles are over
MIN_ANSWERS = 20  # before a percentile means anything
MEAN_RATE = 0.1  # of the moving mean
HALF_LIFE_S = 5.0  # in which a mean that nobody renews loses half its weight


class Latency:
    """Service times of one endpoint.

    Percentiles are of answered requests. The moving mean also learns from requests that were given up, whose time is a
    lower bound, and `expected_s` from those that are still out: a stall shows before anything has ended.
    """

    def __init__(self) -> None:
        self.mean_s: float | None = None
        self.in_flight = 0
        self._starts_s = 0.0  # sum over requests in flight
        self._recent: deque[float] = deque()
        self._sorted: list[float] = []
        self._renewed_s = 0.0

    def sent(self, now_s: float) -> None:
        """A request goes out."""
        self.in_flight += 1
        self._starts_s += now_s

    def answered(self, sent_s: float, now_s: float) -> None:
        """The request of `sent_s` was answered."""
        self._ended(sent_s, now_s)
        seconds = now_s - sent_s
        self.mean_s = seconds if self.mean_s is None else self.mean_s + MEAN_RATE * (seconds - self.mean_s)
        if len(self._recent) == WINDOW:
            del self._sorted[bisect_left(self._sorted, self._recent.popleft())]
        self._recent.append(seconds)
        insort(self._sorted, seconds)

    def gave_up(self, sent_s: float, now_s: float) -> None:
        """The request of `sent_s` was given up: an answer would have taken longer than this."""
        self._ended(sent_s, now_s)
        if self.mean_s is not None:
            self.mean_s += MEAN_RATE * max(0.0, now_s - sent_s - self.mean_s)

    def failed(self, sent_s: float, now_s: float) -> None:
        """The request of `sent_s` ended without an answer; how fast says nothing about answers."""
        self._ended(sent_s, now_s)

    def quantile_s(self, q: float) -> float | None:
        """The time within which a share `q` of the recent answers came (nearest rank); None while there are few."""
        count = len(self._sorted)
        return self._sorted[min(count - 1, int(q * count))] if count >= MIN_ANSWERS else None

    def expected_s(self, now_s: float) -> float | None:
        """Seconds the next answer is expected to take; None if nothing is known.

        With requests out: not less than their mean age. With none: the mean, believed less the older it is, so that an
        endpoint that was slow is tried again, with one request.
        """
        if self.in_flight:
            age_s = max(0.0, now_s - self._starts_s / self.in_flight)
            return age_s if self.mean_s is None else max(self.mean_s, age_s)
        if self.mean_s is None:
            return None
        return self.mean_s * math.exp2(-max(0.0, now_s - self._renewed_s) / HALF_LIFE_S)

    def _ended(self, sent_s: float, now_s: float) -> None:
        self.in_flight -= 1
        self._starts_s = self._starts_s - sent_s if self.in_flight else 0.0
        self._renewed_s = now_s
