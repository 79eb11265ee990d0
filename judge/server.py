"""The embedded judge: rules behind the HTTP interface that a language model has.

It reads the rubrics or criteria and the transcript out of the very prompt a model would get, so everything between
client and judge is exercised the same way. POST /v1/chat/completions, GET /v1/models, GET /health.
"""

from __future__ import annotations

import errno
import itertools
import time
from collections.abc import Callable, Sequence

import anyio
import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from judge.prompt import asked_rubrics
from judge.rules.engine import decide_all
from judge.rules.phrases import score_all
from judge.score_prompt import MalformedCriteria, NumberedCriterion, asked_criteria
from judge.transcript import MalformedTranscript, Transcript, unquote
from stream_rl.errors import ConfigError
from stream_rl.types import TagValue

MODEL = "rules"
MAX_REQUEST_BYTES = 8 * 1024 * 1024
_CHARS_PER_TOKEN = 4
_SHUTDOWN_S = 1.0  # for requests in flight when the server ends


class _ChatMessage(msgspec.Struct):
    role: str
    content: str


class _ChatRequest(msgspec.Struct):
    messages: list[_ChatMessage]
    model: str = MODEL


class _TagEntry(msgspec.Struct):
    id: str
    reason: str
    tag: TagValue


class _Tags(msgspec.Struct):
    tags: list[_TagEntry]


class _ScoreEntry(msgspec.Struct):
    id: int
    reason: str
    score: float | None


class _Scores(msgspec.Struct):
    scores: list[_ScoreEntry]


_DECODER = msgspec.json.Decoder(_ChatRequest)
_ENCODER = msgspec.json.Encoder()


class BadPrompt(ValueError):
    """A request the rules cannot read. The message goes back to the sender."""


def answer(body: bytes) -> tuple[str, int]:
    """Reply text and prompt length in characters for the body of a chat request. Raises `BadPrompt`."""
    try:
        request = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadPrompt(f"not a chat completion request: {error}") from None
    system = next((m.content for m in request.messages if m.role == "system"), "")
    user = next((m.content for m in request.messages if m.role == "user"), "")
    try:
        rubrics = asked_rubrics(system)
        criteria = () if rubrics else asked_criteria(system)
        if not rubrics and not criteria:
            raise BadPrompt("this judge tags and scores only, and the system message lists no rubrics and no criteria")
        transcript = unquote(user)
    except (MalformedCriteria, MalformedTranscript) as error:
        raise BadPrompt(str(error)) from None
    reply = _tags(transcript, rubrics) if rubrics else _scores(transcript, criteria)
    return _ENCODER.encode(reply).decode(), len(system) + len(user)


def _tags(transcript: Transcript, rubrics: Sequence[str]) -> _Tags:
    findings = decide_all(transcript, rubrics)
    return _Tags([_TagEntry(rubric, found.reason, found.value) for rubric, found in findings.items()])


def _scores(transcript: Transcript, criteria: Sequence[NumberedCriterion]) -> _Scores:
    found = score_all(transcript, [c.criterion for c in criteria])
    return _Scores([_ScoreEntry(c.id, f.reason, f.score) for c, f in zip(criteria, found, strict=True)])


def application(delay_s: float = 0.0) -> web.Application:
    """The HTTP application; every judgement takes at least `delay_s`, for tests and measurements."""
    counter = itertools.count(1)

    async def chat(request: web.Request) -> web.Response:
        body = await request.read()
        if delay_s:
            await anyio.sleep(delay_s)
        try:
            content, prompt_chars = answer(body)
        except BadPrompt as error:
            return _error(400, "invalid_request_error", str(error))
        prompt_tokens = prompt_chars // _CHARS_PER_TOKEN
        completion_tokens = len(content) // _CHARS_PER_TOKEN
        return _json(
            {
                "id": f"chatcmpl-{next(counter)}",
                "object": "chat.completion",
                "created": int(time.time()),
                "model": MODEL,
                "choices": [
                    {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
                ],
                "usage": {
                    "prompt_tokens": prompt_tokens,
                    "completion_tokens": completion_tokens,
                    "total_tokens": prompt_tokens + completion_tokens,
                },
            }
        )

    async def models(_: web.Request) -> web.Response:
        return _json({"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "stream_rl"}]})

    async def health(_: web.Request) -> web.Response:
        return _json({"status": "ok"})

    app = web.Application(client_max_size=MAX_REQUEST_BYTES, middlewares=[_openai_errors])
    app.add_routes(
        [
            web.post("/v1/chat/completions", chat),
            web.get("/v1/models", models),
            web.get("/health", health),
        ]
    )
    return app


async def serve(
    host: str = "127.0.0.1",
    port: int = 0,
    on_ready: Callable[[str], None] = lambda url: None,
    *,
    delay_s: float = 0.0,
) -> None:
    """Serve until cancelled. `on_ready` gets the base url once connections are accepted; port 0 takes any free one.

    Raises `ConfigError` when the address cannot be used.
    """
    runner = web.AppRunner(application(delay_s), access_log=None, shutdown_timeout=_SHUTDOWN_S)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except (OSError, OverflowError) as error:
            raise ConfigError("judge serve", _cannot_listen(host, port, error)) from None
        shown = f"[{host}]" if ":" in host else host
        on_ready(f"http://{shown}:{runner.addresses[0][1]}/v1")
        await anyio.sleep_forever()
    finally:
        with anyio.CancelScope(shield=True):
            await runner.cleanup()


def _cannot_listen(host: str, port: int, error: OSError | OverflowError) -> str:
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use; choose another, or 0 for any free one."
    return f"cannot listen on {host}:{port}: {error}."


@web.middleware
async def _openai_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        return _error(error.status, "invalid_request_error", f"{request.method} {request.path}: {error.reason}")


def _error(status: int, kind: str, message: str) -> web.Response:
    return _json({"error": {"message": message, "type": kind, "param": None, "code": None}}, status)


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(body=_ENCODER.encode(value), status=status, content_type="application/json")
