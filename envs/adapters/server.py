"""Any known world behind HTTP, in the calls of `envs.adapters.wire`: its episodes run in the worker pool.

Consumes: requests. Waits for: the pool. Produces: answers; sessions that nobody used for `idle_s` are ended.
Unblocked by: clients.
"""

from __future__ import annotations

import errno
import hmac
import ipaddress
import logging
from collections.abc import Callable
from typing import Any, get_args

import anyio
import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from envs.adapters.wire import (
    LIMIT_BYTES,
    SESSION_CHARACTERS,
    CloseRequest,
    Failure,
    Health,
    ResetRequest,
    StepRequest,
)
from envs.pool import WorkerPool
from stream_rl.errors import EnvironmentFailed, UsageError
from stream_rl.ports import EnvironmentSession
from stream_rl.types import Split

log = logging.getLogger(__name__)

_SHUTDOWN_S = 1.0  # for requests in flight when the server ends
_KEEP_ALIVE_S = 600.0  # a policy may think for minutes between two steps


class _Session:
    """One client's episode. Calls of one session wait for each other."""

    def __init__(self, episode: EnvironmentSession) -> None:
        self.episode = episode
        self.turn = anyio.Lock()
        self.used = anyio.current_time()


class WorldServer:
    """The sessions of one world.

    world: name of an entry of `pool`
    key: bearer token every call must carry; empty: none is asked for
    capacity: sessions open at once; a client that comes later is told to come again
    idle_s: a session that no call touched for so long is ended
    """

    def __init__(
        self, pool: WorkerPool, world: str, *, key: str = "", capacity: int = 256, idle_s: float = 900.0
    ) -> None:
        self._pool = pool
        self._world = world
        self._key = key.encode()
        self._capacity = capacity
        self._idle_s = idle_s
        self._sessions: dict[str, _Session] = {}
        self._opened = anyio.Event()

    def application(self) -> web.Application:
        """The HTTP application."""
        app = web.Application(client_max_size=LIMIT_BYTES, middlewares=[self._guard])
        app.add_routes(
            [
                web.post("/reset", self._reset),
                web.post("/step", self._step),
                web.post("/close", self._close),
                web.get("/health", self._health),
            ]
        )
        return app

    async def expire(self) -> None:
        """End idle sessions, for as long as the server runs."""
        while True:
            if not self._sessions:
                self._opened = anyio.Event()
                await self._opened.wait()
            await anyio.sleep_until(min(session.used for session in self._sessions.values()) + self._idle_s)
            now = anyio.current_time()
            for name, session in list(self._sessions.items()):
                if now - session.used >= self._idle_s and not session.turn.locked():
                    log.warning("session %s was idle for %g s and is ended", name, self._idle_s)
                    await self._end(name)

    async def aclose(self) -> None:
        """End every session."""
        for name in list(self._sessions):
            await self._end(name)

    async def _reset(self, request: web.Request) -> web.Response:
        asked = msgspec.json.decode(await request.read(), type=ResetRequest)
        if not 0 < len(asked.session) <= SESSION_CHARACTERS:
            raise msgspec.ValidationError(f"session: expected 1 to {SESSION_CHARACTERS} characters")
        session = self._sessions.get(asked.session)
        if session is None:
            if len(self._sessions) >= self._capacity:
                return _failure(503, f"all {self._capacity} sessions are taken; close one, or come again")
            session = _Session(await self._pool.open(self._world))
            if (twin := self._sessions.get(asked.session)) is not None:  # the same call again, while this one waited
                await session.episode.aclose()
                session = twin
            self._sessions[asked.session] = session
            self._opened.set()
        # The client's name of the world need not be the server's.
        task = msgspec.structs.replace(asked.task, environment=self._world)
        return await self._call(asked.session, session, lambda episode: episode.reset(task, asked.seed))

    async def _step(self, request: web.Request) -> web.Response:
        asked = msgspec.json.decode(await request.read(), type=StepRequest)
        session = self._sessions.get(asked.session)
        if session is None:
            return _failure(404, f"no session {asked.session[:SESSION_CHARACTERS]!r}: it was closed, failed, or idle")
        return await self._call(asked.session, session, lambda episode: episode.step(asked.action))

    async def _close(self, request: web.Request) -> web.Response:
        asked = msgspec.json.decode(await request.read(), type=CloseRequest)
        await self._end(asked.session)
        return _json({})

    async def _health(self, _: web.Request) -> web.Response:
        splits: tuple[Split, ...] = get_args(Split)
        counts = {split: self._pool.num_tasks(self._world, split) for split in splits}
        return _json(Health(world=self._world, sessions=len(self._sessions), num_tasks=counts))

    async def _call(self, name: str, session: _Session, act: Callable[[EnvironmentSession], Any]) -> web.Response:
        async with session.turn:
            try:
                answer = await act(session.episode)
            except EnvironmentFailed:
                await self._end(name)
                raise
            finally:
                session.used = anyio.current_time()
        return _json(answer)

    async def _end(self, name: str) -> None:
        session = self._sessions.pop(name, None)
        if session is not None:
            await session.episode.aclose()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self._key and not hmac.compare_digest(
            request.headers.get("Authorization", "").encode(), b"Bearer " + self._key
        ):
            return _failure(401, "the bearer token is missing or wrong")
        try:
            return await handler(request)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return _failure(400, f"{request.method} {request.path}: {error}")
        except EnvironmentFailed as error:
            return _failure(500, str(error))
        except web.HTTPException as error:
            return _failure(error.status, f"{request.method} {request.path}: {error.reason}")


async def serve(
    pool: WorkerPool,
    world: str,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    key: str = "",
    capacity: int = 256,
    idle_s: float = 900.0,
    on_ready: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve until cancelled. `on_ready` gets the base address once connections are accepted; port 0 takes any free one.

    Raises `UsageError` when the address cannot be used, or is open to other machines without a key.
    """
    if not key and not _loopback(host):
        raise UsageError(
            f"{host} can be reached from other machines: set a bearer token with --key-env, or bind to 127.0.0.1"
        )
    server = WorldServer(pool, world, key=key, capacity=capacity, idle_s=idle_s)
    runner = web.AppRunner(
        server.application(), access_log=None, shutdown_timeout=_SHUTDOWN_S, keepalive_timeout=_KEEP_ALIVE_S
    )
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except (OSError, OverflowError) as error:
            busy = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
            why = "it is in use; choose another port, or 0 for any free one" if busy else str(error)
            raise UsageError(f"cannot listen on {host}:{port}: {why}") from None
        shown = f"[{host}]" if ":" in host else host
        on_ready(f"http://{shown}:{runner.addresses[0][1]}")
        await server.expire()
    finally:
        with anyio.CancelScope(shield=True):
            await server.aclose()
            await runner.cleanup()


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _json(value: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")


def _failure(status: int, error: str) -> web.Response:
    return web.Response(body=msgspec.json.encode(Failure(error=error)), status=status, content_type="application/json")
