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

    The environment is trusted neither for credentials nor for proxies of loopback addresses.
    """

    def __init__(self, url: str, *, key_env: str, connections: int, environ: Mapping[str, str] = os.environ) -> None:
        self.url = check_url(url)
        headers = {}
        if key_env:
            if key_env not in environ:
                raise ConfigError("generate.key_env", f"the environment variable {key_env} is not set.")
            headers["Authorization"] = f"Bearer {environ[key_env]}"
        self._proxy = _proxy_for(self.url)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),  # the caller has the deadline
            headers=headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )

    async def get(self, path: str, answer: type[T]) -> T:
        """The decoded answer. Raises `ServerGone`, `ServerRefused`."""
        return await self._ask("GET", path, None, answer)

    async def post(self, path: str, body: Any, answer: type[T]) -> T:
        """The decoded answer. Raises `ServerGone`, `ServerRefused`."""
        return await self._ask("POST", path, body, answer)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def _ask(self, method: str, path: str, body: Any, answer: type[T]) -> T:
        url = f"{self.url}{path}"
        data = None if body is None else msgspec.json.encode(body)
        headers = {} if data is None else {"Content-Type": "application/json"}
        try:
            async with self._session.request(
                method, url, data=data, headers=headers, proxy=self._proxy, allow_redirects=False
            ) as response:
                text = await _read(response)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ServerGone(f"{url}: {type(error).__name__}: {error}") from error
        if response.status != 200:
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
