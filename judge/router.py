"""Which endpoint the next request goes to. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

_UNKNOWN_S = 1.0  # expected time of a request to an endpoint that has not answered yet


class EndpointLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about one endpoint now."""

    index: int  # position among the endpoints
    in_flight: int  # requests it works on
    concurrency: int  # requests it is given at once
    mean_s: float | None  # moving mean of its service time; None before the first answer
    wait_s: float  # before this, it must not be asked (back-off, Retry-After, rate limit)

    @property
    def expected_s(self) -> float:
        """Seconds until a request sent to it is answered: its wait, and its queue served `concurrency` at a time."""
        mean_s = _UNKNOWN_S if self.mean_s is None else self.mean_s
        return self.wait_s + mean_s * (1 + self.in_flight // self.concurrency)


class JudgeRouter:
    """Chooses the endpoint that is expected to answer first; ties go to the one with more free places."""

    def choose(self, loads: Iterable[EndpointLoad]) -> EndpointLoad | None:
        """The endpoint to ask, or None if there is none. Its `wait_s` has to pass first."""
        return min(loads, key=lambda e: (e.expected_s, e.in_flight / e.concurrency, e.index), default=None)
