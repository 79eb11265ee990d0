"""One ask on its way: until when it must be answered, and what it learned about endpoints."""

from __future__ import annotations

import math
import random

from judge.endpoint import AttemptFailed
from judge.retry import backoff_s
from judge.router import Wish


class Errand:
    """State of one ask through all of its requests. Pure: the caller brings the clock.

    number: order of arrival; earlier errands are served first
    """

    def __init__(self, number: int, rng: random.Random) -> None:
        self.number = number
        self.deadline_s = math.inf  # absolute; set with the first place
        self.seconds = 0.0  # from the first place to the deadline
        self.problem = ""  # of the last failure
        self._rng = rng
        self._failures: dict[int, int] = {}  # in a row, by endpoint
        self._refused: set[int] = set()
        self._avoided: set[int] = set()
        self._not_before_s: dict[int, float] = {}
        self.wish = Wish(refused=self._refused, avoided=self._avoided, not_before_s=self._not_before_s)

    @property
    def begun(self) -> bool:
        """Whether it had a place yet. Its time runs from then: a long queue must not turn into abstentions."""
        return self.deadline_s < math.inf

    def begin(self, now_s: float, seconds: float) -> None:
        """It has its first place, and so many seconds for everything."""
        if not self.begun:
            self.seconds = seconds
            self.deadline_s = now_s + seconds

    def failed(self, index: int, url: str, failure: AttemptFailed, now_s: float) -> None:
        """A request of this errand failed at one endpoint."""
        self.problem = f"{url}: {failure}"
        if failure.kind == "schema":
            return
        if not failure.retryable:
            self._refused.add(index)
            return
        failures = self._failures[index] = self._failures.get(index, 0) + 1
        wait_s = backoff_s(failures, failure.retry_after_s, self._rng, remaining_s=self.deadline_s - now_s)
        self._not_before_s[index] = now_s + wait_s

    def answered_unusably(self, index: int) -> None:
        """An endpoint's answer left something open; others are asked for it, if there are any."""
        self._failures.pop(index, None)
        self._avoided.add(index)
