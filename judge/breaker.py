"""When to stop asking an endpoint that is dead, and when to look again. Pure: the caller brings the clock."""

from __future__ import annotations

import math
from typing import Literal

MIN_FAILURES = 8  # in a row, before an endpoint counts as down
SPAN_S = 1.0  # from the sending of the first of them, before an endpoint counts as down
FIRST_PAUSE_S = 1.0  # before the first probe
LONGEST_PAUSE_S = 30.0  # between probes

BreakerState = Literal["up", "probing", "down"]


class Breaker:
    """Circuit breaker of one endpoint, with single probes.

    up -> down after `MIN_FAILURES` failures in a row that span at least `SPAN_S`: at a high rate of requests a row of
    failures alone may be chance. down -> probing when its pause has passed and one request was let through. probing ->
    up if that succeeds; -> down with twice the pause if it fails. A success of any request, also of an old one, is a
    sign of life and closes the breaker.
    """

    def __init__(self) -> None:
        self._failures = 0  # in a row
        self._failing_since_s = 0.0  # when the first of them was sent
        self._alive_s = -math.inf  # last success
        self._pause_s = FIRST_PAUSE_S
        self._down_until_s: float | None = None
        self._probing = False

    @property
    def state(self) -> BreakerState:
        """Whether requests go out freely, one is out to try, or none goes out."""
        if self._down_until_s is None:
            return "up"
        return "probing" if self._probing else "down"

    @property
    def ready_s(self) -> float:
        """The moment before which no request may go out."""
        return 0.0 if self._down_until_s is None else self._down_until_s

    def sent(self) -> bool:
        """A request goes out. Returns whether it is a probe, whose end must be told with `probe=True`."""
        if self._down_until_s is None:
            return False
        self._probing = True
        return True

    def succeeded(self, now_s: float) -> bool:
        """A request was answered. Returns whether the endpoint was down until now."""
        was_down = self._down_until_s is not None
        self._failures = 0
        self._alive_s = now_s
        self._pause_s = FIRST_PAUSE_S
        self._down_until_s = None
        self._probing = False
        return was_down

    def failed(self, sent_s: float, now_s: float, *, probe: bool) -> bool:
        """The request of `sent_s` failed. Returns whether the endpoint went down by this."""
        since_s = max(sent_s, self._alive_s)
        self._failing_since_s = min(self._failing_since_s, since_s) if self._failures else since_s
        self._failures += 1
        if self._down_until_s is not None:
            if probe and self._probing:  # late failures of requests from before say nothing new
                self._probing = False
                self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
                self._down_until_s = now_s + self._pause_s
            return False
        if self._failures < MIN_FAILURES or now_s - self._failing_since_s < SPAN_S:
            return False
        self._down_until_s = now_s + self._pause_s
        return True

    def abandoned(self, *, probe: bool) -> None:
        """A request was given up before its outcome was known; another may probe in its place."""
        if probe:
            self._probing = False
