"""Real HTTP on loopback: the embedded judge, and a server that misbehaves as told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import anyio
import pytest
from aiohttp import web
from anyio.abc import TaskStatus

from judge.server import answer, application, serve

Act = Callable[[web.Request], Awaitable[web.StreamResponse]]


class FaultServer:
    """Answers each chat request with the next act of a script, then like the embedded judge."""

    def __init__(self) -> None:
        self.url = ""
        self.script: list[Act] = []
        self.requests: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.in_flight = 0
        self.most_in_flight = 0

    async def chat(self, request: web.Request) -> web.StreamResponse:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            self.requests.append(await request.read())
            self.headers.append(dict(request.headers))
            act = self.script.pop(0) if self.script else None
            return await act(request) if act else completion(answer(self.requests[-1])[0])
        finally:
            self.in_flight -= 1


def completion(content: object, **more: object) -> web.Response:
    """A chat completion with this content."""
    return web.json_response({"choices": [{"message": {"role": "assistant", "content": content}}], **more})


def says(content: object, **more: object) -> Act:
    """Reply with this content."""

    async def act(_: web.Request) -> web.StreamResponse:
        return completion(content, **more)

    return act


def status(code: int, text: str = "", **headers: str) -> Act:
    """Reply with a status."""

    async def act(_: web.Request) -> web.StreamResponse:
        return web.Response(status=code, text=text, headers={k.replace("_", "-"): v for k, v in headers.items()})

    return act


async def stall(_: web.Request) -> web.StreamResponse:
    """Never answer."""
    await anyio.sleep_forever()
    raise AssertionError


async def reset(request: web.Request) -> web.StreamResponse:
    """Break the connection."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def endless(request: web.Request) -> web.StreamResponse:
    """Send a body without end."""
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" " * 65536)


@asynccontextmanager
async def running(app: web.Application) -> AsyncIterator[str]:
    """Serve an application on a free loopback port; gives the base url."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.05, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


@pytest.fixture
async def faulty() -> AsyncIterator[FaultServer]:
    server = FaultServer()
    app = web.Application()
    app.add_routes([web.post("/v1/chat/completions", server.chat)])
    async with running(app) as server.url:
        yield server


@pytest.fixture
async def second() -> AsyncIterator[FaultServer]:
    server = FaultServer()
    app = web.Application()
    app.add_routes([web.post("/v1/chat/completions", server.chat)])
    async with running(app) as server.url:
        yield server


@pytest.fixture
async def embedded() -> AsyncIterator[str]:
    """Base url of the embedded judge."""
    async with running(application()) as url:
        yield url


async def start_serving(*, port: int = 0, delay_s: float = 0.0, task_status: TaskStatus[str]) -> None:
    """`serve` for a task group's `start`."""
    await serve(port=port, on_ready=partial(_started, task_status), delay_s=delay_s)


def _started(task_status: TaskStatus[str], url: str) -> None:
    task_status.started(url)
