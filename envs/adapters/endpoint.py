"""The policy as an OpenAI-compatible address: a program's model call waits there until the policy has answered.

POST /TOKEN/v1/chat/completions, streamed or not, and GET /TOKEN/v1/models, on a loopback port; TOKEN is the episode.
"""

from __future__ import annotations

import itertools
import json
import secrets
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any

import msgspec
from aiohttp import web

from envs.adapters.chat import ChatMessage, ChatReply

MODEL = "policy"
_LIMIT_BYTES = 16 << 20
_SHUTDOWN_S = 0.5


class ModelCall(msgspec.Struct):
    """What a program asks for. Sampling settings are left to the trainer."""

    messages: list[ChatMessage]  # the conversation so far
    tools: list[dict[str, Any]] | None = None  # what the model may call
    stream: bool = False  # whether the answer shall come as events


Ask = Callable[[ModelCall], Awaitable[ChatReply]]


class PolicyEndpoint:
    """The loopback server of one process; `open` gives an address for one episode."""

    def __init__(self) -> None:
        self._asks: dict[str, Ask] = {}
        self._numbers = itertools.count(1)
        app = web.Application(client_max_size=_LIMIT_BYTES)
        app.router.add_post("/{token}/v1/chat/completions", self._chat)
        app.router.add_get("/{token}/v1/models", self._models)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_S)
        self._address = ""

    async def __aenter__(self) -> PolicyEndpoint:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self._address = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    def open(self, ask: Ask) -> tuple[str, str]:
        """A token, and the base address ending in /v1 whose model calls `ask` answers."""
        token = secrets.token_urlsafe(12)
        self._asks[token] = ask
        return token, f"{self._address}/{token}/v1"

    def close(self, token: str) -> None:
        """From now on nothing is answered there."""
        self._asks.pop(token, None)

    async def _models(self, request: web.Request) -> web.Response:
        self._ask(request)
        return web.json_response({"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "policy"}]})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        ask = self._ask(request)
        try:
            call = msgspec.json.decode(await request.read(), type=ModelCall)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return web.json_response({"error": {"message": f"not a chat completion request: {error}"}}, status=400)
        answer = await ask(call)
        head = {"id": f"chatcmpl-{next(self._numbers)}", "created": int(time.time()), "model": MODEL}
        if not call.stream:
            return web.json_response(_completion(head, answer))
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        await stream.prepare(request)
        for event in (*_chunks(head, answer), "[DONE]"):
            await stream.write(f"data: {event}\n\n".encode())
        await stream.write_eof()
        return stream

    def _ask(self, request: web.Request) -> Ask:
        ask = self._asks.get(request.match_info["token"])
        if ask is None:
            raise web.HTTPGone(text="the episode of this address is over")
        return ask


def _message(answer: ChatReply, *, numbered: bool) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer.content}
    if answer.tool_calls:
        message["tool_calls"] = [
            {"id": f"call_{secrets.token_hex(8)}", "type": "function", "function": call}
            | ({"index": i} if numbered else {})
            for i, call in enumerate(answer.tool_calls)
        ]
    return message


def _finish(answer: ChatReply) -> str:
    return "tool_calls" if answer.tool_calls else "stop"


def _completion(head: dict[str, Any], answer: ChatReply) -> dict[str, Any]:
    # The trainer counts tokens itself; programs want to see some.
    usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    choice = {"index": 0, "message": _message(answer, numbered=False), "finish_reason": _finish(answer)}
    return {**head, "object": "chat.completion", "choices": [choice], "usage": usage}


def _chunks(head: dict[str, Any], answer: ChatReply) -> list[str]:
    chunk = {**head, "object": "chat.completion.chunk"}
    whole = {"index": 0, "delta": _message(answer, numbered=True), "finish_reason": None}
    end: dict[str, Any] = {"index": 0, "delta": {}, "finish_reason": _finish(answer)}
    return [json.dumps({**chunk, "choices": [choice]}) for choice in (whole, end)]
