"""The HTTP session all endpoints share, and who goes through a proxy."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from stream_rl.errors import ConfigError

CONNECT_S = 10.0  # for the TCP connection alone
MAX_CONNECTIONS = 4096  # of one session; endpoints that want more together are refused


def proxy_for(url: str) -> str | None:
    """The proxy the environment names for `url`; none for loopback addresses, whatever the environment says."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if is_loopback(host) or proxy_bypass(host):
        return None
    return getproxies().get(parts.scheme)


def check_address(url: str, index: int) -> None:
    """Raise `ConfigError` for a base address that cannot be asked, or that would carry a secret into logs."""
    if not url.startswith(("http://", "https://")):
        raise ConfigError(
            f"judge.endpoints.{index}.url",
            f"{url!r} is not an http(s) address; an embedded judge has to be started and its address put in its place.",
        )
    if "@" in urlsplit(url).netloc:
        raise ConfigError(
            f"judge.endpoints.{index}.url",
            "an address with a user name or password in it would be shown in logs; export the key as an environment "
            "variable and name it in key_env.",
        )


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def new_session(connections: int = MAX_CONNECTIONS) -> aiohttp.ClientSession:
    """The one session of a process: at most so many connections, deadlines left to the caller.

    The environment is not trusted to choose proxies, which `proxy_for` does, nor to add credentials from a netrc file.
    Bodies are not decompressed: none is asked for compressed, and a small one could hide a huge one.
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=connections),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
        headers={"Accept-Encoding": "identity"},
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
    )
