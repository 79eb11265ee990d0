"""A judge over real HTTP that fails in every way a judge can, and writes down what it was asked."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import anyio
import msgspec
from aiohttp import web

from stream_rl.rubrics.vocabulary import Vocabulary, builtin

SMALL = Vocabulary(
    rubrics=tuple(builtin()[r] for r in ("precision.valid_actions", "focus.needed_objects", "care.small_scope")),
    digest="small",
)
PROMPT_TOKENS = 600
COMPLETION_TOKENS = 40
TOKENS = PROMPT_TOKENS + COMPLETION_TOKENS  # of one healthy answer

Fault = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _tags(*values: str) -> str:
    entries = [{"id": r, "reason": "seen", "tag": v} for v in values for r in SMALL.ids]
    return json.dumps({"tags": entries})


def _completion(content: str) -> bytes:
    usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": COMPLETION_TOKENS}
    message = {"role": "assistant", "content": content}
    return json.dumps({"model": "mixed", "choices": [{"message": message}], "usage": usage}).encode()


_HEALTHY = _completion(_tags("positive"))
_CONTRADICTING = _completion(_tags("positive", "violation"))
_CUT_SHORT = _HEALTHY[: len(_HEALTHY) // 2]


async def retry_after(_: web.Request) -> web.StreamResponse:
    """429 that says when to come back."""
    return web.Response(status=429, headers={"Retry-After": "0.05"})


async def busy(_: web.Request) -> web.StreamResponse:
    """429 that does not."""
    return web.Response(status=429)


async def broken(_: web.Request) -> web.StreamResponse:
    return web.Response(status=500, text="CUDA error")


async def unauthorised(_: web.Request) -> web.StreamResponse:
    return web.Response(status=401, text="no such key")


async def reset(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def stall(_: web.Request) -> web.StreamResponse:
    await anyio.sleep_forever()
    raise AssertionError


async def drip(request: web.Request) -> web.StreamResponse:
    """One byte a second."""
    response = web.StreamResponse()
    await response.prepare(request)
    for byte in _HEALTHY:
        await response.write(bytes([byte]))
        await anyio.sleep(1.0)
    return response


async def huge(request: web.Request) -> web.StreamResponse:
    """A body without end."""
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" " * 262_144)


async def garbage(_: web.Request) -> web.StreamResponse:
    """JSON that ends too early."""
    return web.Response(body=_CUT_SHORT, content_type="application/json")


async def contradicting(_: web.Request) -> web.StreamResponse:
    """The right form, and every rubric both positive and violated."""
    return web.Response(body=_CONTRADICTING, content_type="application/json")


class Asked(msgspec.Struct, frozen=True):
    """One line of the server's log."""

    at_s: float  # monotonic
    fault: str  # name of the fault it met; empty for a healthy answer


class FaultServer:
    """Answers after `latency_s`; each fault strikes with its share of the requests, by a seeded die."""

    def __init__(self, faults: Mapping[Fault, float] | None = None, *, latency_s: float = 0.0, seed: int = 0) -> None:
        self.url = ""
        self.latency_s = latency_s
        self.log: list[Asked] = []
        self.in_flight = 0
        self.most_in_flight = 0
        self.asked = anyio.Event()  # a request has come in
        self.runner: web.AppRunner | None = None
        self._faults = dict(faults or {})
        self._rng = random.Random(seed)

    def strike(self, faults: Mapping[Fault, float]) -> None:
        """Fail in these ways from now on."""
        self._faults = dict(faults)

    @property
    def counts(self) -> Counter[str]:
        """Requests by the fault they met."""
        return Counter(asked.fault for asked in self.log)

    def peak(self, weight: Callable[[Asked], float], rate: float) -> float:
        """The most that a bucket leaking `rate` a second would have held: how far requests ran ahead of a limit."""
        level = highest = 0.0
        before_s = self.log[0].at_s
        for asked in self.log:
            level = max(0.0, level - rate * (asked.at_s - before_s)) + weight(asked)
            highest = max(highest, level)
            before_s = asked.at_s
        return highest

    @asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncIterator[FaultServer]:
        """Listen on loopback; port 0 takes a free one."""
        app = web.Application()
        app.add_routes([web.post("/v1/chat/completions", self._chat)])
        self.runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.05, handler_cancellation=True)
        await self.runner.setup()
        try:
            await web.TCPSite(self.runner, "127.0.0.1", port).start()
            self.url = f"http://127.0.0.1:{self.runner.addresses[0][1]}/v1"
            yield self
        finally:
            await self.kill()

    async def kill(self) -> None:
        """Stop listening, and break what is in flight."""
        if self.runner is not None:
            runner, self.runner = self.runner, None
            with anyio.CancelScope(shield=True):
                await runner.cleanup()

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        self.asked.set()
        fault = self._roll()
        self.log.append(Asked(time.monotonic(), fault.__name__ if fault else ""))
        try:
            await request.read()
            if fault:
                return await fault(request)
            if self.latency_s:
                await anyio.sleep(self.latency_s)
            return web.Response(body=_HEALTHY, content_type="application/json")
        except ConnectionError:  # the client hung up, as it should
            return web.Response()
        finally:
            self.in_flight -= 1

    def _roll(self) -> Fault | None:
        point = self._rng.random()
        for fault, share in self._faults.items():
            if point < share:
                return fault
            point -= share
        return None
