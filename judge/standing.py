"""How an endpoint is doing, for people."""

from __future__ import annotations

from typing import Literal

import msgspec

EndpointState = Literal["up", "probing", "down", "draining"]


class EndpointStanding(msgspec.Struct, frozen=True, kw_only=True):
    """One line of `judge list`. Shares and percentiles are over the last 100 requests or answers."""

    url: str  # base address
    model: str  # model asked for
    state: EndpointState  # down: not asked; probing: one request is out to try; draining: detached, not empty yet
    in_flight: int  # requests now
    limit: int  # requests it is given at once now, at most the configured concurrency
    p50_s: float | None  # service time, median of answered requests; None while there are few
    p95_s: float | None  # the same, 95th percentile
    error_share: float  # part of the requests that failed, 0 to 1
    abstain_share: float  # part of the questions its answers left open, 0 to 1
    prompt_tokens: int  # since it was attached, as reported
    completion_tokens: int  # since it was attached, as reported
    price: float  # of these tokens, at the configured prices
    answered: int  # requests since it was attached
    failed: int  # requests since it was attached
    problem: str = ""  # of the last failure; empty while the last request was answered
