"""Which endpoint a request goes to, or is worth waiting for. Pure.

Every choice is by the expected time to an answer: the wait until the endpoint takes the request, and its service time.
A busy endpoint that is fast may be worth more than an idle one that is slow, and one of a lower tier more than one of
a higher tier. Then the request waits, but only in a short queue: a long one keeps the busy endpoint busy without it,
while the idle one would add to the whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

import msgspec

UNKNOWN_S = 1.0  # expected service time where no endpoint has answered yet
PATIENCE = 0.5  # service times one waits for an endpoint while another takes the request now
LOOK_AGAIN_S = 0.01  # at least, before a request that waits for a better endpoint chooses again
_TICK_S = 0.001  # no timer is set shorter


class EndpointLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about one endpoint now."""

    index: int  # identity
    tier: int = 0  # lower is preferred while it keeps up
    limit: int = 1  # requests it is given at once
    in_flight: int = 0  # requests it works on
    latency_s: float | None = None  # expected service time, failed attempts included; None: nothing known
    interval_s: float = 0.0  # least time between two requests in the long run, by its rate limits
    ready_s: float = 0.0  # moment before which it must not be asked (rate limit, Retry-After, breaker)
    down: bool = False  # its breaker is open; from `ready_s` on it takes one request as a probe

    @property
    def free(self) -> int:
        """Requests it takes at once beyond those it has."""
        return max(0, self.limit - self.in_flight)


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What one request asks of its endpoint."""

    refused: AbstractSet[int] = frozenset()  # will not answer it
    avoided: AbstractSet[int] = frozenset()  # answered it unusably; others are preferred
    not_before_s: Mapping[int, float] = {}  # moment before which this request must not go there again


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The endpoint with the least expected time to an answer."""

    index: int  # which
    now: bool  # it takes the request now; False: wait for it
    look_again_s: float  # if not now: choose again after these seconds at the latest; inf: when a request ends
    earliest_s: float  # seconds until any endpoint may be asked at all, busy ones counted as ready


class _Option(msgspec.Struct, frozen=True):
    load: EndpointLoad
    start_s: float  # until it takes the request; 0: now
    latency_s: float

    @property
    def expected_s(self) -> float:
        """Until the answer. An endpoint is expected to be slower the more of its places are taken."""
        busy = min(1.0, self.load.in_flight / self.load.limit)
        return self.start_s + self.latency_s * (1.0 + busy)


def choose(
    wish: Wish, loads: Iterable[EndpointLoad], now_s: float, claims: Mapping[int, int] | None = None
) -> Choice | None:
    """Where a request should go; None if no endpoint will answer it.

    claims: requests that came earlier and wait, by the endpoint they wait for
    """
    willing = [load for load in loads if load.index not in wish.refused]
    if not willing:
        return None
    fresh = [load for load in willing if load.index not in wish.avoided]
    candidates = fresh if any(not load.down for load in fresh) else willing
    unknown_s = min((load.latency_s for load in candidates if load.latency_s is not None), default=UNKNOWN_S)
    options: list[_Option] = []
    waits_s: list[float] = []  # until time alone makes another choice
    earliest_s = math.inf
    for load in candidates:
        block_s = max(0.0, load.ready_s - now_s, wish.not_before_s.get(load.index, 0.0) - now_s)
        earliest_s = min(earliest_s, block_s)
        if block_s > 0.0 and load.free:
            waits_s.append(max(_TICK_S, block_s))
        options.append(_option(load, block_s, unknown_s, claims.get(load.index, 0) if claims else 0))
    # One that is down is tried, but nobody waits for it while another is up.
    hopeful = [option for option in options if option.start_s == 0.0 or not option.load.down]
    best = _best(hopeful or options)
    startable = [option.expected_s for option in hopeful if option.start_s == 0.0]
    if startable:  # the wait for a better one must not cost more than it can gain
        waits_s.append(max(LOOK_AGAIN_S, min(startable) - best.expected_s))
    return Choice(
        index=best.load.index,
        now=best.start_s == 0.0,
        look_again_s=min(waits_s, default=math.inf),
        earliest_s=earliest_s,
    )


def _option(load: EndpointLoad, block_s: float, unknown_s: float, claims: int) -> _Option:
    latency_s = unknown_s if load.latency_s is None or (load.down and load.free) else load.latency_s
    if load.free and block_s == 0.0:
        return _Option(load, 0.0, latency_s)
    pace_s = max(load.interval_s, latency_s / load.limit, 1e-6)
    place_s = 0.0 if load.free else pace_s
    return _Option(load, max(block_s, place_s) + claims * pace_s, latency_s)


def _best(options: list[_Option]) -> _Option:
    for tier in sorted({option.load.tier for option in options}):
        in_tier = [option for option in options if option.load.tier == tier]
        for option in in_tier:
            if option.load.down and option.start_s == 0.0:  # a probe is due
                return option
        soon = [option for option in in_tier if option.start_s <= PATIENCE * option.latency_s]
        if soon:
            return min(soon, key=_rank)
    return min(options, key=_rank)


def _rank(option: _Option) -> tuple[float, int]:
    return option.expected_s, option.load.index
