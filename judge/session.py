"""The HTTP session all endpoints share, and who goes through a proxy."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

CONNECT_S = 10.0  # for the TCP connection alone


def proxy_for(url: str) -> str | None:
    """The proxy the environment names for `url`; none for loopback addresses, whatever the environment says."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if is_loopback(host) or proxy_bypass(host):
        return None
    return getproxies().get(parts.scheme)


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def new_session(connections: int) -> aiohttp.ClientSession:
    """The one session of a process: as many connections as requests may run at once, deadlines left to the caller."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=connections),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
        trust_env=False,
    )
