"""How much judging is left when the judges fail, and when one of them becomes slow.

    python -m benchmarks.judge_faults [--seconds 15] [--rate 60] [--json]

Real HTTP on loopback, judges and client in one process, so the rates are kept well below what a core can carry.

mix: three judges with a limit of `--rate` requests a second each, and together ten kinds of faults, each of which
strikes a tenth of the requests of its judge. What the healthy share allows is the rate times the share of requests
that meet no fault. The first seconds, in which saved-up allowance is spent, are not counted.

slow: three equal judges; one becomes 20 times slower. Its share is a third of the throughput.

alone: a judge that takes as long as `latency`, asked by as many workers as it has places: what the client itself adds
to an answer.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import AsyncExitStack

import anyio
import msgspec

from judge.client import OpenAIJudge
from judge.limits import BURST_S
from stream_rl.config import JudgeEndpoint
from tests.contract.judge.driving import resident_bytes
from tests.contract.judge.fault_server import (
    SMALL,
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
from tests.unit.judge.builders import CLEAN, trajectory

SLOWER = 20.0
WORKERS = 64


class Mix(msgspec.Struct, frozen=True, kw_only=True):
    """Judging through faults."""

    taggings: int  # ended while measured
    abstained: int  # of them
    goodput: float  # verdicts a second
    allowed: float  # verdicts a second that the healthy share of the limits allows
    share: float  # goodput / allowed
    longest_s: float  # from submission to verdict or abstention
    deadline_s: float  # of one tagging
    grown_mb: float  # memory, while measured


class Slow(msgspec.Struct, frozen=True, kw_only=True):
    """One of three judges becomes slow."""

    before: float  # verdicts a second
    after: float  # verdicts a second
    lost: float  # share of the throughput
    allowed: float  # its share of the throughput, and 10 % more


class Alone(msgspec.Struct, frozen=True, kw_only=True):
    """What the client adds."""

    latency_s: float  # of the judge
    tagging_s: float  # median, from submission to verdict


class Taggings:
    """Workers that tag until told to stop."""

    def __init__(self, judge: OpenAIJudge) -> None:
        self._judge = judge
        self.seconds: list[float] = []
        self.abstained = 0

    @property
    def judged(self) -> int:
        """Taggings with a verdict."""
        return len(self.seconds) - self.abstained

    async def work(self) -> None:
        while True:
            verdict = await self._judge.tag(trajectory(CLEAN, f"g/{len(self.seconds)}"))
            self.seconds.append(verdict.seconds)
            self.abstained += verdict.abstained

    def forget(self) -> None:
        """Count from now on."""
        self.seconds.clear()
        self.abstained = 0


async def mix(seconds: float, rate: int, deadline_s: float = 4.0) -> Mix:
    servers = (
        FaultServer({retry_after: 0.1, broken: 0.1, stall: 0.1, contradicting: 0.1}, latency_s=0.05, seed=1),
        FaultServer({busy: 0.1, reset: 0.1, drip: 0.1}, latency_s=0.05, seed=2),
        FaultServer({unauthorised: 0.1, huge: 0.1, garbage: 0.1}, latency_s=0.05, seed=3),
    )
    healthy = (0.6, 0.7, 0.7)
    async with AsyncExitStack() as stack:
        for server in servers:
            await stack.enter_async_context(server.serving())
        endpoints = [
            JudgeEndpoint(
                url=s.url, model="mixed", requests_per_minute=60 * rate, concurrency=32, deadline_s=deadline_s
            )
            for s in servers
        ]
        judge = await stack.enter_async_context(OpenAIJudge(endpoints, SMALL))
        taggings = Taggings(judge)
        async with anyio.create_task_group() as group:
            for _ in range(WORKERS):
                group.start_soon(taggings.work)
            await anyio.sleep(2 * BURST_S)
            taggings.forget()
            began, memory = time.monotonic(), resident_bytes()
            await anyio.sleep(seconds)
            took, grown = time.monotonic() - began, resident_bytes() - memory
            group.cancel_scope.cancel()
    goodput, allowed = taggings.judged / took, rate * sum(healthy)
    return Mix(
        taggings=len(taggings.seconds),
        abstained=taggings.abstained,
        goodput=goodput,
        allowed=allowed,
        share=goodput / allowed,
        longest_s=max(taggings.seconds),
        deadline_s=deadline_s,
        grown_mb=grown / 2**20,
    )


async def slow(seconds: float, latency_s: float = 0.1, places: int = 8) -> Slow:
    servers = [FaultServer(latency_s=latency_s) for _ in range(3)]
    async with AsyncExitStack() as stack:
        for server in servers:
            await stack.enter_async_context(server.serving())
        endpoints = [JudgeEndpoint(url=s.url, model="mixed", concurrency=places) for s in servers]
        taggings = Taggings(await stack.enter_async_context(OpenAIJudge(endpoints, SMALL)))
        async with anyio.create_task_group() as group:
            for _ in range(3 * places):
                group.start_soon(taggings.work)
            await anyio.sleep(1.0)
            before = await _rate(taggings, seconds)
            servers[-1].latency_s = SLOWER * latency_s
            after = await _rate(taggings, seconds)
            group.cancel_scope.cancel()
    return Slow(before=before, after=after, lost=1.0 - after / before, allowed=1 / 3 + 0.1)


async def alone(seconds: float, latency_s: float = 0.1, places: int = 8) -> Alone:
    server = FaultServer(latency_s=latency_s)
    async with server.serving():
        endpoint = JudgeEndpoint(url=server.url, model="mixed", concurrency=places)
        async with OpenAIJudge([endpoint], SMALL) as judge:
            taggings = Taggings(judge)
            async with anyio.create_task_group() as group:
                for _ in range(places):
                    group.start_soon(taggings.work)
                await anyio.sleep(seconds)
                group.cancel_scope.cancel()
    return Alone(latency_s=latency_s, tagging_s=sorted(taggings.seconds)[len(taggings.seconds) // 2])


async def _rate(taggings: Taggings, seconds: float) -> float:
    began, judged = time.monotonic(), taggings.judged
    await anyio.sleep(seconds)
    return (taggings.judged - judged) / (time.monotonic() - began)


async def measure(seconds: float, rate: int) -> tuple[Mix, Slow, Alone]:
    """All three, one after the other."""
    return await mix(seconds, rate), await slow(seconds / 2), await alone(seconds / 5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=15.0, help="length of one measurement")
    parser.add_argument("--rate", type=int, default=60, help="requests a second of each judge of the mix")
    parser.add_argument("--json", action="store_true", help="print facts as one JSON object")
    arguments = parser.parse_args()
    through, slowed, added = anyio.run(measure, arguments.seconds, arguments.rate)
    if arguments.json:
        json.dump(msgspec.to_builtins({"mix": through, "slow": slowed, "alone": added}), sys.stdout)
        return
    print(
        f"ten faults: {through.goodput:.1f} verdicts/s of {through.allowed:.1f} allowed ({through.share:.0%}), "
        f"{through.abstained} of {through.taggings} abstained, longest {through.longest_s:.2f} s of "
        f"{through.deadline_s:g} s, memory {through.grown_mb:+.1f} MB"
    )
    print(
        f"one of three {SLOWER:g}x slower: {slowed.before:.1f} to {slowed.after:.1f} verdicts/s, "
        f"{slowed.lost:.0%} lost, at most {slowed.allowed:.0%}"
    )
    print(f"a judge of {added.latency_s:g} s: {added.tagging_s:.3f} s from submission to verdict")


if __name__ == "__main__":
    main()
