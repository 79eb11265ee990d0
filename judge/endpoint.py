"""One OpenAI-compatible endpoint: a request, its answer, and everything that can be wrong with it."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from typing import Literal

import aiohttp
import anyio
import msgspec

from judge.limits import RateBudget
from judge.prompt import TagPrompt
from judge.retry import parse_retry_after
from judge.router import EndpointLoad
from judge.session import proxy_for
from stream_rl.config import JudgeEndpoint
from stream_rl.errors import ConfigError, JudgeFailed

MAX_REPLY_BYTES = 1024 * 1024
_MEAN_RATE = 0.1  # of the moving mean of service times
_SHOWN_CHARS = 200  # of a server's own error text

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
]
_RETRIED: frozenset[FailureKind] = frozenset({"unreachable", "slow", "busy", "server", "format"})


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


class EndpointStats(msgspec.Struct, frozen=True, kw_only=True):
    """Counts since the start, for status lines."""

    url: str  # base address
    model: str  # model asked for
    in_flight: int  # requests now
    answered: int  # requests answered
    failed: int  # requests that failed
    mean_s: float | None  # moving mean of the service time
    last_error: str  # problem of the last failure; empty while the last request was answered


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
    """Sends tagging requests to one address and remembers how that went.

    Raises `ConfigError` when the environment variable that should hold the key is not set.
    """

    def __init__(
        self,
        config: JudgeEndpoint,
        session: aiohttp.ClientSession,
        *,
        index: int = 0,
        clock: Callable[[], float] = time.monotonic,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.config = config
        self.index = index
        self._key = read_key(config, index, environ)
        self._session = session
        self._clock = clock
        self._chat_url = f"{config.url.rstrip('/')}/chat/completions"
        self._proxy = proxy_for(config.url)
        self._headers = {"Content-Type": "application/json"}
        if self._key:
            self._headers["Authorization"] = f"Bearer {self._key}"
        self._budget = RateBudget(config.requests_per_minute, config.tokens_per_minute)
        self._takes_schema = True  # until it refuses one
        self._not_before_s = 0.0
        self._in_flight = 0
        self._answered = 0
        self._failed = 0
        self._mean_s: float | None = None
        self._last_error = ""

    @property
    def stats(self) -> EndpointStats:
        """Counts so far."""
        return EndpointStats(
            url=self.config.url,
            model=self.config.model,
            in_flight=self._in_flight,
            answered=self._answered,
            failed=self._failed,
            mean_s=self._mean_s,
            last_error=self._last_error,
        )

    def load(self, ready_s: float = 0.0) -> EndpointLoad:
        """Its load for the router; `ready_s`: the caller will not ask it before this moment."""
        now = self._clock()
        return EndpointLoad(
            index=self.index,
            in_flight=self._in_flight,
            concurrency=self.config.concurrency,
            mean_s=self._mean_s,
            wait_s=max(0.0, ready_s - now, self._not_before_s - now, self._budget.wait_s(now)),
        )

    async def complete(self, prompt: TagPrompt, quotation: str, timeout_s: float) -> Answer:
        """Ask once. Raises `AttemptFailed`."""
        started = self._clock()
        self._budget.take(started, (len(prompt.system) + len(quotation)) // 4)
        self._in_flight += 1
        try:
            with anyio.fail_after(timeout_s):
                answer = await self._ask(prompt, quotation)
        except TimeoutError:
            self._observe(timeout_s)
            raise self._failure(AttemptFailed("slow", f"no answer within {timeout_s:.3g} s")) from None
        except aiohttp.ClientConnectorError as error:
            problem = f"cannot connect: {error.os_error.strerror or error.os_error}"
            raise self._failure(AttemptFailed("unreachable", problem)) from None
        except (aiohttp.ClientError, OSError) as error:
            problem = f"connection broke: {self._redact(str(error)) or type(error).__name__}"
            raise self._failure(AttemptFailed("unreachable", problem)) from None
        except AttemptFailed as failure:
            if failure.retry_after_s is not None:
                self._not_before_s = self._clock() + failure.retry_after_s
            raise self._failure(failure) from None
        finally:
            self._in_flight -= 1
        self._observe(self._clock() - started)
        self._answered += 1
        if self._last_error:
            _LOG.info("judge %s answers again", self.config.url)
            self._last_error = ""
        return answer

    async def models(self, timeout_s: float) -> list[str]:
        """Names the endpoint lists; empty if it lists none in time."""

        url = f"{self.config.url.rstrip('/')}/models"
        try:
            with anyio.fail_after(timeout_s):
                async with self._session.get(url, headers=self._headers, proxy=self._proxy) as response:
                    body = await _read_limited(response)
            return [m.id for m in msgspec.json.decode(body, type=_Models).data]
        except (aiohttp.ClientError, OSError, AttemptFailed, msgspec.DecodeError):
            return []

    async def _ask(self, prompt: TagPrompt, quotation: str) -> Answer:
        status, body, retry_after_s = await self._post(self._body(prompt, quotation))
        if status == 400 and self._takes_schema and b"response_format" in body:
            _LOG.info("judge %s takes no response_format; asking without from now on", self.config.url)
            self._takes_schema = False
            status, body, retry_after_s = await self._post(self._body(prompt, quotation))
        if status != 200:
            raise self._refusal(status, body, retry_after_s)
        try:
            completion = _DECODER.decode(body)
        except (msgspec.DecodeError, RecursionError):
            raise AttemptFailed("format", f"not a chat completion: {self._excerpt(body)}") from None
        if not completion.choices:
            raise AttemptFailed("format", "a chat completion without choices")
        usage = completion.usage or _Usage()
        return Answer(
            content=completion.choices[0].message.content or "",
            model=completion.model or self.config.model,
            prompt_tokens=max(0, usage.prompt_tokens or 0),
            completion_tokens=max(0, usage.completion_tokens or 0),
        )

    def _body(self, prompt: TagPrompt, quotation: str) -> bytes:
        request: dict[str, object] = {
            "model": self.config.model,
            "messages": [prompt.system_json, {"role": "user", "content": prompt.user(quotation)}],
            "temperature": 0,
            "max_tokens": prompt.max_tokens,
        }
        if self._takes_schema:
            request["response_format"] = prompt.response_format
        return _ENCODER.encode(request)

    async def _post(self, body: bytes) -> tuple[int, bytes, float | None]:
        # A redirect would carry the key to an address nobody configured.
        async with self._session.post(
            self._chat_url, data=body, headers=self._headers, proxy=self._proxy, allow_redirects=False
        ) as response:
            reply = await _read_limited(response)
            return response.status, reply, parse_retry_after(response.headers.get("Retry-After"), time.time())

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

    def _failure(self, failure: AttemptFailed) -> AttemptFailed:
        self._failed += 1
        if not self._last_error:
            _LOG.warning("judge %s: %s", self.config.url, failure)
        self._last_error = str(failure)
        return failure

    def _observe(self, seconds: float) -> None:
        self._mean_s = seconds if self._mean_s is None else self._mean_s + _MEAN_RATE * (seconds - self._mean_s)

    def _excerpt(self, body: bytes) -> str:
        text = " ".join(self._redact(body.decode("utf-8", "replace")).split())
        return text[:_SHOWN_CHARS] or "(empty body)"

    def _redact(self, text: str) -> str:
        # Servers like to quote a refused key.
        return text.replace(self._key, "***") if self._key else text


def read_key(config: JudgeEndpoint, index: int, environ: Mapping[str, str]) -> str:
    """The key, or "" for an endpoint without one. Raises `ConfigError` naming a variable that is not set."""
    if not config.key_env:
        return ""
    key = environ.get(config.key_env, "").strip()
    if not key:
        raise ConfigError(
            f"judge.endpoints.{index}.key_env",
            f"the environment variable {config.key_env} is not set; export the key of {config.url} under that name.",
        )
    return key


async def _read_limited(response: aiohttp.ClientResponse) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_any():
        parts.append(part)
        size += len(part)
        if size > MAX_REPLY_BYTES:
            raise AttemptFailed("format", f"reply longer than {MAX_REPLY_BYTES} bytes")
    return b"".join(parts)
