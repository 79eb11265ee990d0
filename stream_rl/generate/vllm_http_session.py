"""JSON requests to one vLLM server, and what its refusals mean."""

from __future__ import annotations

import os
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec

from stream_rl.errors import ConfigError, GenerationFailed

CONNECT_S = 10.0  # for the TCP connection alone
_IDLE_S = 2.0  # that a connection is kept for the next turn: less than the 5 s after which vLLM closes it
_OK = 200
_MAX_ANSWER_BYTES = 64 << 20  # a turn of 100,000 tokens is 10 MB of JSON
_TOLD_CHARS = 400  # of a server's own words in an error

T = TypeVar("T")


class ServerGone(GenerationFailed):
    """Nobody answers at the address any more, or the connection broke: what it held is lost."""


class ServerRefused(GenerationFailed):
    """The server answered, and not with what was asked for."""

    def __init__(self, url: str, status: int, text: str) -> None:
        self.status = status
        super().__init__(f"{url} answered {status}: {text[:_TOLD_CHARS]}")


class ServerSession:
    """Connections to one server. An async context is not needed: `aclose` ends it.

    Turns share connections. Everything else gets a new one: a server may close an idle connection at the very moment
    it is used again, and nobody could tell whether a weight call had arrived.

    The environment is trusted neither for credentials nor for proxies of loopback addresses.
    """

    def __init__(self, url: str, *, key_env: str, connections: int, environ: Mapping[str, str] = os.environ) -> None:
        self.url = check_url(url)
        self.key_env = key_env
        headers = {}
        if key_env:
            if key_env not in environ:
                raise ConfigError("generate.key_env", f"the environment variable {key_env} is not set.")
            headers["Authorization"] = f"Bearer {environ[key_env]}"
        self._proxy = _proxy_for(self.url)

        def over(connector: aiohttp.TCPConnector) -> aiohttp.ClientSession:
            return aiohttp.ClientSession(
                connector=connector,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),  # the caller has the deadline
                headers=headers,
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
            )

        self._shared = over(aiohttp.TCPConnector(limit=connections, keepalive_timeout=_IDLE_S))
        self._new = over(aiohttp.TCPConnector(limit=connections, force_close=True))

    async def get(self, path: str, answer: type[T]) -> T:
        """The decoded answer. Raises `ServerGone`, `ServerRefused`."""
        return await self._ask(self._new, "GET", path, None, answer)

    async def post(self, path: str, body: Any, answer: type[T]) -> T:
        """The decoded answer. Raises `ServerGone`, `ServerRefused`."""
        return await self._ask(self._new, "POST", path, body, answer)

    async def post_again(self, path: str, body: Any, answer: type[T]) -> T:
        """As `post`, for what may be done twice: over a shared connection, and once more if that broke.

        Raises `ServerGone` only when the server is not there, or broke two connections.
        """
        try:
            return await self._ask(self._shared, "POST", path, body, answer)
        except ServerGone:
            if not await self.healthy():
                raise
        return await self.post(path, body, answer)

    async def healthy(self) -> bool:
        """Whether the server says that its engine lives."""
        try:
            async with self._new.get(
                f"{self.url}/health", proxy=self._proxy, timeout=aiohttp.ClientTimeout(total=CONNECT_S)
            ) as response:
                return response.status == _OK
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False

    async def aclose(self) -> None:
        """Close all connections."""
        await self._shared.close()
        await self._new.close()

    async def _ask(self, session: aiohttp.ClientSession, method: str, path: str, body: Any, answer: type[T]) -> T:
        url = f"{self.url}{path}"
        data = None if body is None else msgspec.json.encode(body)
        headers = {} if data is None else {"Content-Type": "application/json"}
        try:
            async with session.request(
                method, url, data=data, headers=headers, proxy=self._proxy, allow_redirects=False
            ) as response:
                text = await _read(response)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ServerGone(f"{url}: {type(error).__name__}: {error}") from error
        if response.status != _OK:
            raise ServerRefused(url, response.status, text.decode(errors="replace"))
        try:
            return msgspec.json.decode(text, type=answer)
        except msgspec.DecodeError as error:
            raise ServerRefused(
                url, response.status, f"{error}: {text[:_TOLD_CHARS].decode(errors='replace')}"
            ) from error


async def _read(response: aiohttp.ClientResponse) -> bytes:
    parts, size = [], 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > _MAX_ANSWER_BYTES:
            response.close()
            raise ServerRefused(str(response.url), response.status, f"more than {_MAX_ANSWER_BYTES} bytes")
        parts.append(part)
    return b"".join(parts)


def check_url(url: str) -> str:
    """The base address without a trailing slash; `ConfigError` for one that cannot be asked or carries a secret."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError("generate.servers", f"{url!r} is not an http(s) address, as http://127.0.0.1:8000.")
    if "@" in parts.netloc:
        raise ConfigError(
            "generate.servers",
            "an address with a user name or password in it would be shown in logs; export the key as an environment "
            "variable and name it in generate.key_env.",
        )
    return url.rstrip("/").removesuffix("/v1")


def _proxy_for(url: str) -> str | None:
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        loopback = ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost" or host.endswith(".localhost")
    return None if loopback or proxy_bypass(host) else getproxies().get(parts.scheme)
