"""The web server: routes, headers, and who does the reading. What is shown is decided in `reader` and in the assets."""

from __future__ import annotations

import errno
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from importlib import resources
from typing import Any, TypeVar

import anyio
import anyio.abc
import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from stream_rl.config import JudgeEndpoint
from stream_rl.errors import ConfigError, StreamRLError
from stream_rl.messages import AttachJudge, DetachJudge, FromControl, JudgesReply, Tune, TuneReply
from stream_rl.page.guard import SECURITY_HEADERS, refusal
from stream_rl.page.reader import RunReader
from stream_rl.page.snapshot import Ask, Snapshot
from stream_rl.sinks.prometheus import CONTENT_TYPE, prometheus_text

log = logging.getLogger(__name__)

R = TypeVar("R")

HOST = "127.0.0.1"
_MAX_REQUEST_BYTES = 64 * 1024
_SHUTDOWN_S = 0.5  # for requests in flight when the server ends
_MAX_POINTS = 2000
_LARGEST = 2**53  # a browser counts no further, and neither SQLite nor NumPy takes what is far larger
_ENCODER = msgspec.json.Encoder()
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_TOKEN_MARK = "{{token}}"


class _Detach(msgspec.Struct, forbid_unknown_fields=True):
    url: str


class _Tune(msgspec.Struct, forbid_unknown_fields=True):
    async_depth: int | None = None
    paused: bool | None = None


class RunPage:
    """One run's page. Reading happens in one worker thread at a time, so that it never holds the event loop up."""

    def __init__(self, name: str, facts: Mapping[str, Any], reader: RunReader, ask: Ask) -> None:
        """`facts`: of the configuration, shown as they are. `ask`: puts a question to the run's orchestrator."""
        self._about = {"run": name, "facts": facts}
        self._reader = reader
        self._snapshot = Snapshot(ask)
        self._token = secrets.token_urlsafe(24)
        self._thread = anyio.CapacityLimiter(1)
        self._assets = {
            entry.name: entry.read_bytes()
            for entry in resources.files("stream_rl.page").joinpath("assets").iterdir()
            if _suffix(entry.name) in _TYPES
        }

    def application(self) -> web.Application:
        """The HTTP application."""
        app = web.Application(client_max_size=_MAX_REQUEST_BYTES, middlewares=[self._guarded])
        app.add_routes(
            [
                web.get("/", self._index),
                web.get("/assets/{name}", self._asset),
                web.get("/metrics", self._metrics),
                web.get("/api/run", self._run),
                web.get("/api/live", self._live),
                web.get("/api/updates", self._updates),
                web.get("/api/evaluations", self._plain(self._reader.evaluations)),
                web.get("/api/events", self._plain(self._reader.events)),
                web.get("/api/rubrics", self._plain(self._reader.rubrics)),
                web.get("/api/depths", self._plain(self._reader.depths)),
                web.get("/api/groups", self._groups),
                web.get("/api/rollout", self._rollout),
                web.post("/api/tune", self._tune),
                web.post("/api/judges/attach", self._attach),
                web.post("/api/judges/detach", self._detach),
            ]
        )
        return app

    async def serve(self, port: int, *, task_status: anyio.abc.TaskStatus[str] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serve on loopback until cancelled; port 0 takes any free one. Told once it accepts: the page's address.

        Raises `ConfigError("page.port", ...)` when the port cannot be used.
        """
        runner = web.AppRunner(self.application(), access_log=None, shutdown_timeout=_SHUTDOWN_S)
        await runner.setup()
        try:
            try:
                await web.TCPSite(runner, HOST, port).start()
            except OSError as error:
                in_use = error.errno == errno.EADDRINUSE
                problem = "is in use; choose another, or 0 for any free one" if in_use else f"cannot be used: {error}"
                raise ConfigError("page.port", f"port {port} {problem}.") from None
            task_status.started(f"http://{HOST}:{runner.addresses[0][1]}/")
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await runner.cleanup()

    # files

    async def _index(self, _: web.Request) -> web.Response:
        text = self._assets["index.html"].decode().replace(_TOKEN_MARK, self._token)
        return web.Response(text=text, content_type="text/html")

    async def _asset(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in self._assets or name == "index.html":
            return _error(404, f"no asset {name!r}")
        return web.Response(body=self._assets[name], content_type=_TYPES[_suffix(name)], charset="utf-8")

    # what is going on

    async def _run(self, _: web.Request) -> web.Response:
        return _json(self._about)

    async def _live(self, _: web.Request) -> web.Response:
        status = await self._snapshot.get()
        if status is None:
            return _json({"running": False, **await self._read(self._reader.left_behind)})
        return _json({"running": True, **status})

    async def _metrics(self, _: web.Request) -> web.Response:
        text = prometheus_text(await self._snapshot.get(), await self._read(self._reader.last_line))
        return web.Response(text=text, headers={"Content-Type": CONTENT_TYPE})

    async def _updates(self, request: web.Request) -> web.Response:
        points = min(_MAX_POINTS, max(1, _whole(request, "points", 400)))
        since, epoch = _whole(request, "since", -1), request.query.get("epoch", "")
        return await self._answer(lambda: self._reader.updates(since=since, points=points, epoch=epoch))

    async def _groups(self, request: web.Request) -> web.Response:
        query = request.query
        before = _whole(request, "before", 0)
        return await self._answer(
            lambda: self._reader.groups(
                held_out=query.get("purpose") == "eval",
                before=before or None,
                environment=query.get("environment", ""),
                state=query.get("state", ""),
            )
        )

    async def _rollout(self, request: web.Request) -> web.Response:
        id_ = request.query.get("id", "")
        found = await self._read(lambda: self._reader.episode(id_))
        return _error(404, f"the ledger holds no rollout {id_!r}") if found is None else _json(found)

    def _plain(self, read: Callable[[], object]) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handler(_: web.Request) -> web.Response:
            return await self._answer(read)

        return handler

    # actions

    async def _attach(self, request: web.Request) -> web.Response:
        try:
            endpoint = msgspec.json.decode(await request.read(), type=JudgeEndpoint)
        except msgspec.DecodeError as error:
            return _error(400, f"not an endpoint: {error}")
        return await self._change(AttachJudge(endpoint=msgspec.to_builtins(endpoint)))

    async def _detach(self, request: web.Request) -> web.Response:
        try:
            asked = msgspec.json.decode(await request.read(), type=_Detach)
        except msgspec.DecodeError as error:
            return _error(400, f"not a detachment: {error}")
        return await self._change(DetachJudge(url=asked.url))

    async def _tune(self, request: web.Request) -> web.Response:
        try:
            asked = msgspec.json.decode(await request.read(), type=_Tune)
        except msgspec.DecodeError as error:
            return _error(400, f"nothing that can be tuned: {error}")
        return await self._change(Tune(async_depth=asked.async_depth, paused=asked.paused))

    async def _change(self, message: FromControl) -> web.Response:
        """Ask the orchestrator; what it refuses is told in its words."""
        reply = await self._snapshot.act(message)
        match reply:
            case JudgesReply(error=None):
                return _json({"endpoints": reply.endpoints})
            case TuneReply(error=None):
                return _json({"async_depth": reply.async_depth, "paused": reply.paused})
            case JudgesReply() | TuneReply():
                return _error(409, str(reply.error))
            case _:
                return _error(409, "the run is not running: nobody answers there")

    # plumbing

    async def _read(self, read: Callable[[], R]) -> R:
        return await anyio.to_thread.run_sync(read, limiter=self._thread)

    async def _answer(self, read: Callable[[], object]) -> web.Response:
        """Reading and encoding, both in the thread."""
        return _json_bytes(await self._read(lambda: _ENCODER.encode(read())))

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        problem = refusal(request.method, request.headers, self._token)
        response: web.StreamResponse
        if problem:
            response = _error(403, problem)
        else:
            try:
                response = await handler(request)
            except web.HTTPException as error:
                response = _error(error.status, f"{request.method} {request.path}: {error.reason}")
            except StreamRLError as error:  # a damaged file: the page says so, and the run goes on
                log.warning("page: %s %s: %s", request.method, request.path, error)
                response = _error(500, str(error))
        response.headers.update(SECURITY_HEADERS)
        return response


def _whole(request: web.Request, name: str, default: int) -> int:
    text = request.query.get(name, "")
    if not text:
        return default
    value: int | None
    try:
        value = int(text)
    except ValueError:
        value = None
    if value is None or abs(value) > _LARGEST:
        raise web.HTTPBadRequest(reason=f"{name} must be a whole number")
    return value


def _suffix(name: str) -> str:
    return name[name.rfind(".") :]


def _error(status: int, text: str) -> web.Response:
    return _json({"error": text}, status)


def _json(value: object, status: int = 200) -> web.Response:
    return _json_bytes(_ENCODER.encode(value), status)


def _json_bytes(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")
