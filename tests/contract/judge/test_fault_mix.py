"""Thousands of taggings through judges that fail in ten ways."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import AsyncExitStack

import pytest

from judge.client import OpenAIJudge
from judge.limits import BURST_S
from stream_rl.config import JudgeEndpoint
from tests.contract.judge.driving import resident_bytes, tag_all
from tests.contract.judge.fault_server import (
    SMALL,
    TOKENS,
    FaultServer,
    broken,
    busy,
    contradicting,
    drip,
    garbage,
    huge,
    reset,
    retry_after,
    stall,
    unauthorised,
)

TAGGINGS = 5_000
WORKERS = 64
DEADLINE_S = 10.0
REQUESTS_A_SECOND = 15
TOKENS_A_SECOND = 15 * TOKENS
PLACES = 16
JITTER_S = 1.0  # between a request's sending and its line in the server's log
FLAT_BYTES = 24 * 1024 * 1024


@pytest.mark.timeout(240)  # about ten seconds of computing, which takes as long as the machine is busy
async def test_five_thousand_taggings_through_ten_faults() -> None:
    """Each fault strikes a tenth of the requests of its server; each server has another limit that binds."""
    by_requests = FaultServer({retry_after: 0.1, broken: 0.1, stall: 0.1, contradicting: 0.1}, latency_s=0.02, seed=1)
    by_tokens = FaultServer({busy: 0.1, reset: 0.1, drip: 0.1}, latency_s=0.02, seed=2)
    by_places = FaultServer({unauthorised: 0.1, huge: 0.1, garbage: 0.1}, latency_s=0.02, seed=3)
    servers = (by_requests, by_tokens, by_places)
    memory: list[int] = []

    async def measure(done: int) -> None:
        if done in (TAGGINGS // 4, TAGGINGS):
            memory.append(resident_bytes())

    async with AsyncExitStack() as stack:
        for server in servers:
            await stack.enter_async_context(server.serving())
        endpoints = [
            JudgeEndpoint(
                url=by_requests.url,
                requests_per_minute=60 * REQUESTS_A_SECOND,
                concurrency=32,
                deadline_s=DEADLINE_S,
            ),
            JudgeEndpoint(
                url=by_tokens.url,
                tokens_per_minute=60 * TOKENS_A_SECOND,
                concurrency=32,
                deadline_s=DEADLINE_S,
            ),
            JudgeEndpoint(url=by_places.url, concurrency=PLACES, deadline_s=DEADLINE_S),
        ]
        judge = await stack.enter_async_context(OpenAIJudge(endpoints, SMALL))
        began_s, began_cpu_s = time.monotonic(), time.process_time()
        verdicts = await tag_all(judge, TAGGINGS, workers=WORKERS, progress=measure)
        # On a busy machine every span of time is longer than meant, by about this factor.
        stretch = (time.monotonic() - began_s) / (time.process_time() - began_cpu_s)
        standing = judge.standing()

    # All end, in time, and what a liar said is in none of them.
    assert len({verdict.trajectory_id for verdict in verdicts}) == TAGGINGS
    values = Counter(tuple(tag.value for tag in verdict.tags) for verdict in verdicts)
    assert set(values) <= {("positive",) * 3, ("abstained",) * 3}
    assert max(verdict.seconds for verdict in verdicts) < 1.25 * DEADLINE_S * stretch

    # Healthy answers are not wasted, and almost every tagging gets one.
    healthy = sum(server.counts[""] for server in servers)
    judged = values[("positive",) * 3]
    assert judged >= 0.9 * healthy
    assert judged >= 0.97 * TAGGINGS
    assert [s.in_flight for s in standing] == [0] * 3

    # No limit is crossed, by the servers' own account, though each is reached unless the machine is too busy for it.
    ahead = by_requests.peak(lambda asked: 1.0, REQUESTS_A_SECOND)
    assert ahead <= REQUESTS_A_SECOND * (BURST_S + JITTER_S)
    assert ahead >= 0.8 * REQUESTS_A_SECOND * BURST_S or stretch > 4
    ahead_tokens = by_tokens.peak(lambda asked: 0.0 if asked.fault else TOKENS, TOKENS_A_SECOND)
    assert ahead_tokens <= TOKENS_A_SECOND * (BURST_S + JITTER_S)
    # A second request that came too late is hung up on, which the server sees a moment after its place is given on.
    assert PLACES <= by_places.most_in_flight <= PLACES + 2

    assert memory[1] - memory[0] < FLAT_BYTES
