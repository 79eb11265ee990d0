"""A world behind HTTP, spoken to in the calls of `envs.adapters.wire`."""

from __future__ import annotations

import http.client
import os
import time
import uuid
from functools import cache
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlsplit

import msgspec

from envs.adapters.wire import LIMIT_BYTES, PROTOCOL, CloseRequest, Failure, Health, ResetRequest, StepRequest
from stream_rl.errors import ConfigError, EnvironmentFailed
from stream_rl.types import Observation, Split, StepResult, Task

_FIRST_BACKOFF_S = 0.2
_FRESH_S = 20.0  # a connection unused for longer may have been dropped by the other side unnoticed
_CLOSE_S = 2.0  # a lost /close costs the server nothing but an idle session

A = TypeVar("A")


class Remote:
    """One episode at a time on a remote world, over one connection.

    url: base address, "http://host:port" or "https://host/path"
    timeout_s: longest wait for one answer; keep it under `step_deadline_s`, which kills the worker
    attempts: how often /reset is tried while the server is busy or does not answer; /step is sent once
    key_env: name of the environment variable that holds the bearer token; empty: none is sent

    Raises `ConfigError` when the options make no sense, and `EnvironmentFailed` when no world answers there.
    """

    def __init__(self, *, url: str, timeout_s: float = 9.0, attempts: int = 3, key_env: str = "") -> None:
        address = urlsplit(url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ConfigError("environments.options", f"url: {url!r} is no address; expected http://host:port.")
        if timeout_s <= 0 or attempts < 1:
            raise ConfigError("environments.options", "timeout_s must be above 0 and attempts at least 1.")
        if key_env and key_env not in os.environ:
            raise ConfigError("environments.options", f"key_env: the environment variable {key_env} is not set.")
        self._address = address
        self._timeout_s = timeout_s
        self._attempts = attempts
        self._key = os.environ.get(key_env, "")
        self._connection: http.client.HTTPConnection | None = None
        self._used = 0.0  # when the connection was last used
        self._session: str | None = None
        self._health = _health(url, timeout_s, self._key)

    def num_tasks(self, split: Split) -> int | None:
        """Tasks of the split as the server counts them."""
        return self._health.num_tasks.get(split)

    def reset(self, task: Task, seed: int) -> Observation:
        """Begin an episode under a new session. Raises `EnvironmentFailed`."""
        self._leave()
        request = ResetRequest(session=uuid.uuid4().hex, task=task, seed=seed)
        for attempt in range(1, self._attempts + 1):
            try:
                observation = self._call("reset", request, Observation)
            except _Unanswered as error:
                if attempt == self._attempts:
                    raise EnvironmentFailed(f"{error}; tried {attempt} times") from error
                time.sleep(_FIRST_BACKOFF_S * 2 ** (attempt - 1))
            else:
                break
        self._session = request.session
        return observation

    def step(self, action: str) -> StepResult:
        """Act. Raises `EnvironmentFailed`; the episode is lost then, since the action may or may not have counted."""
        if self._session is None:
            raise EnvironmentFailed(f"{self._address.geturl()}: no episode has begun; call reset first")
        try:
            return self._call("step", StepRequest(session=self._session, action=action), StepResult)
        except EnvironmentFailed:
            self._session = None
            raise

    def close(self) -> None:
        """End the session and the connection."""
        self._leave()
        self._hang_up()

    def _leave(self) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        try:
            self._call("close", CloseRequest(session=session), dict[str, Any], timeout_s=min(_CLOSE_S, self._timeout_s))
        except EnvironmentFailed:  # the server ends sessions that stay idle
            self._hang_up()

    def _call(self, name: str, request: msgspec.Struct, kind: type[A], *, timeout_s: float | None = None) -> A:
        if time.monotonic() - self._used > _FRESH_S:
            self._hang_up()
        if self._connection is None:
            self._connection = _connect(self._address, timeout_s or self._timeout_s)
        self._connection.timeout = timeout_s or self._timeout_s
        if self._connection.sock is not None:
            self._connection.sock.settimeout(self._connection.timeout)
        try:
            body = msgspec.json.encode(request)
            answer = _exchange(self._connection, self._address, self._key, "POST", name, body, kind)
        except BaseException:
            self._hang_up()
            raise
        self._used = time.monotonic()
        return answer

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Unanswered(EnvironmentFailed):
    """The call may be made again if it is one that may be repeated."""


@cache
def _health(url: str, timeout_s: float, key: str) -> Health:
    """What the server says of itself, asked once in a process. Raises `EnvironmentFailed`."""
    address = urlsplit(url)
    connection = _connect(address, timeout_s)
    try:
        health = _exchange(connection, address, key, "GET", "health", None, Health)
    finally:
        connection.close()
    if health.protocol != PROTOCOL:
        raise EnvironmentFailed(f"{url}: speaks protocol {health.protocol}; this client speaks {PROTOCOL}")
    return health


def _connect(address: SplitResult, timeout_s: float) -> http.client.HTTPConnection:
    """Connects when it is first used. Proxies of the environment are not asked."""
    kind = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
    assert address.hostname is not None
    return kind(address.hostname, address.port, timeout=timeout_s)


def _exchange(
    connection: http.client.HTTPConnection,
    address: SplitResult,
    key: str,
    method: str,
    name: str,
    body: bytes | None,
    kind: type[A],
) -> A:
    """One request and its answer, decoded. Raises `EnvironmentFailed`."""
    where = f"{address.scheme}://{address.netloc}{address.path.rstrip('/')}/{name}"
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    try:
        connection.request(method, f"{address.path.rstrip('/')}/{name}", body=body, headers=headers)
        answer = connection.getresponse()
        data = answer.read(LIMIT_BYTES + 1)
    except (OSError, http.client.HTTPException) as error:
        raise _Unanswered(f"{where}: no answer: {type(error).__name__}: {error}") from error
    if len(data) > LIMIT_BYTES:
        raise EnvironmentFailed(f"{where}: the answer is longer than {LIMIT_BYTES} bytes")
    if answer.status != http.client.OK:
        failure = _Unanswered if answer.status == http.client.SERVICE_UNAVAILABLE else EnvironmentFailed
        raise failure(f"{where}: {answer.status}: {_told(data)}")
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise EnvironmentFailed(f"{where}: the answer is not what was agreed: {error}") from error


def _told(data: bytes) -> str:
    try:
        return msgspec.json.decode(data, type=Failure).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return repr(data[:200])
