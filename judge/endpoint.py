"""One OpenAI-compatible endpoint: a request, its answer, and everything that can be wrong with it."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from typing import Literal

import aiohttp
import anyio
import msgspec

from judge.request import Prompt, names_bound
from judge.retry import parse_retry_after
from judge.secret import read_key
from judge.session import CONNECT_S, proxy_for
from stream_rl.config import JudgeEndpoint
from stream_rl.errors import JudgeFailed

MAX_REPLY_BYTES = 1024 * 1024
_SHOWN_CHARS = 200  # of a server's own error text
_SCHEMA_WORDS = (b"response_format", b"schema", b"maxlength")  # in the error of a server that takes no such schema

_LOG = logging.getLogger(__name__)

FailureKind = Literal[
    "unreachable",  # no connection, or it broke
    "slow",  # no answer in time
    "busy",  # 429
    "server",  # 5xx
    "key",  # 401, 403
    "not_found",  # 404, 405
    "refused",  # any other status
    "format",  # not what the protocol promises
    "schema",  # it takes no such schema; it will be asked with a simpler one, or with none, from now on
]
SchemaForm = Literal["bounded", "unbounded", "none"]
_RETRIED: frozenset[FailureKind] = frozenset({"unreachable", "slow", "busy", "server", "format", "schema"})


class AttemptFailed(JudgeFailed):
    """One request was not answered usably. The message never contains the key."""

    def __init__(self, kind: FailureKind, problem: str, *, retry_after_s: float | None = None) -> None:
        self.kind = kind
        self.retry_after_s = retry_after_s
        super().__init__(problem)

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.kind in _RETRIED


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A model's reply."""

    content: str  # text of the first choice; empty for a refusal
    model: str  # as the endpoint names it
    prompt_tokens: int  # 0 where the endpoint does not count
    completion_tokens: int  # 0 where the endpoint does not count


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Message


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]
    model: str | None = None
    usage: _Usage | None = None


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


_DECODER = msgspec.json.Decoder(_Completion)
_ENCODER = msgspec.json.Encoder()


class Endpoint:
    """Sends judging requests to one address.

    Raises `ConfigError` when the environment variable that should hold the key cannot be used.
    """

    def __init__(
        self,
        config: JudgeEndpoint,
        session: aiohttp.ClientSession,
        *,
        index: int = 0,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.config = config
        self._secret = read_key(config, index, environ)
        self._session = session
        self._base = config.url.rstrip("/")
        self._proxy = proxy_for(config.url)
        self._form: SchemaForm = "bounded"  # of the schema it is sent, until it refuses it

    async def complete(self, prompt: Prompt, quotation: str, timeout_s: float) -> Answer:
        """Ask, and again with less of a schema while it takes none such. Raises `AttemptFailed`."""
        while True:
            try:
                return await self.ask(prompt, quotation, timeout_s)
            except AttemptFailed as failure:
                if failure.kind != "schema":
                    raise

    async def ask(self, prompt: Prompt, quotation: str, timeout_s: float) -> Answer:
        """One request. Raises `AttemptFailed`."""
        form = self._form
        try:
            with anyio.fail_after(timeout_s):
                status, body, retry_after_s = await self._post(self._body(prompt, quotation, form))
        except aiohttp.ClientConnectorError as error:
            problem = f"cannot connect: {error.os_error.strerror or error.os_error}"
            raise AttemptFailed("unreachable", problem) from None
        except aiohttp.ClientHttpProxyError as error:  # its text holds the proxy's address, and perhaps a password
            raise AttemptFailed("unreachable", f"the proxy refuses: HTTP {error.status}") from None
        except aiohttp.ConnectionTimeoutError:
            raise AttemptFailed("unreachable", f"no connection within {CONNECT_S:g} s") from None
        except TimeoutError:
            raise AttemptFailed("slow", f"no answer within {timeout_s:.3g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            problem = f"connection broke: {self._secret.redact(str(error)) or type(error).__name__}"
            raise AttemptFailed("unreachable", problem) from None
        if status != 200:
            if form != "none" and status in (400, 422) and any(word in body.lower() for word in _SCHEMA_WORDS):
                raise self._refused_schema(form, status, body)
            raise self._refusal(status, body, retry_after_s)
        return self._answer(body)

    async def models(self, timeout_s: float) -> list[str]:
        """Names the endpoint lists; empty if it lists none in time."""
        url = f"{self._base}/models"
        try:
            with anyio.fail_after(timeout_s):
                async with self._session.get(
                    url, headers=self._secret.headers(), proxy=self._proxy, allow_redirects=False
                ) as response:
                    body = await _read_limited(response)
            return [self._secret.redact(m.id) for m in msgspec.json.decode(body, type=_Models).data]
        except (aiohttp.ClientError, OSError, AttemptFailed, msgspec.DecodeError):
            return []

    def _body(self, prompt: Prompt, quotation: str, form: SchemaForm) -> bytes:
        request: dict[str, object] = {
            "model": self.config.model,
            "messages": [prompt.system_json, {"role": "user", "content": prompt.user(quotation)}],
            "temperature": 0,
            "max_tokens": prompt.max_tokens,
        }
        if form != "none":
            request["response_format"] = prompt.response_format if form == "bounded" else prompt.unbounded_format
        return _ENCODER.encode(request)

    async def _post(self, body: bytes) -> tuple[int, bytes, float | None]:
        headers = {"Content-Type": "application/json", **self._secret.headers()}
        # A redirect would carry the key to an address nobody configured.
        async with self._session.post(
            f"{self._base}/chat/completions", data=body, headers=headers, proxy=self._proxy, allow_redirects=False
        ) as response:
            reply = await _read_limited(response)
            return response.status, reply, parse_retry_after(response.headers.get("Retry-After"), time.time())

    def _answer(self, body: bytes) -> Answer:
        try:
            completion = _DECODER.decode(body)
        except (msgspec.DecodeError, RecursionError):
            raise AttemptFailed("format", f"not a chat completion: {self._excerpt(body)}") from None
        if not completion.choices:
            raise AttemptFailed("format", "a chat completion without choices")
        usage = completion.usage or _Usage()
        return Answer(
            content=self._secret.redact(completion.choices[0].message.content or ""),
            model=self._secret.redact(completion.model or self.config.model),
            prompt_tokens=max(0, usage.prompt_tokens or 0),
            completion_tokens=max(0, usage.completion_tokens or 0),
        )

    def _refused_schema(self, form: SchemaForm, status: int, body: bytes) -> AttemptFailed:
        if self._form == form:  # no other request found out meanwhile
            self._form = "unbounded" if form == "bounded" and names_bound(body) else "none"
            _LOG.info("judge %s takes no %s schema; asking with %s from now on", self.config.url, form, self._form)
        return AttemptFailed("schema", f"HTTP {status}: {self._excerpt(body)}")

    def _refusal(self, status: int, body: bytes, retry_after_s: float | None) -> AttemptFailed:
        problem = f"HTTP {status}: {self._excerpt(body)}"
        if status == 429:
            return AttemptFailed("busy", problem, retry_after_s=retry_after_s)
        if status >= 500:
            return AttemptFailed("server", problem, retry_after_s=retry_after_s)
        if status in (401, 403):
            return AttemptFailed("key", problem)
        if status in (404, 405):
            return AttemptFailed("not_found", problem)
        return AttemptFailed("refused", problem)

    def _excerpt(self, body: bytes) -> str:
        text = " ".join(self._secret.redact(body.decode("utf-8", "replace")).split())
        return text[:_SHOWN_CHARS] or "(empty body)"


async def _read_limited(response: aiohttp.ClientResponse) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_any():
        parts.append(part)
        size += len(part)
        if size > MAX_REPLY_BYTES:
            raise AttemptFailed("format", f"reply longer than {MAX_REPLY_BYTES} bytes")
    return b"".join(parts)
