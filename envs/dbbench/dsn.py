"""Where a MySQL server is, from one address: mysql://user:password@host:3306/?ssl=true or ?socket=/path."""

from __future__ import annotations

from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

_SCHEMES = ("mysql", "mariadb")
_OPTIONS = ("socket", "ssl")


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """A server and an account that may make databases and users on it."""

    host: str = "127.0.0.1"  # name or address
    port: int = 3306  # TCP
    socket: str = ""  # path of a local socket, instead of host and port
    user: str = "root"  # account
    password: str = ""  # of the account; never shown
    ssl: bool = False  # encrypt the connections

    def __repr__(self) -> str:
        return f"{self.user}@{self.socket or f'{self.host}:{self.port}'}"


def parse_dsn(dsn: str) -> Server:
    """The server an address names. Raises `ValueError`, whose message does not hold the address: it has a password."""
    parts = urlsplit(dsn)
    if parts.scheme not in _SCHEMES:
        raise ValueError("an address begins with mysql:// or mariadb://")
    given = parse_qs(parts.query, keep_blank_values=True)
    unknown = sorted(set(given) - set(_OPTIONS))
    if unknown:
        raise ValueError(f"unknown {', '.join(unknown)}; after ? there may be {' and '.join(_OPTIONS)}")
    if parts.path not in ("", "/"):
        raise ValueError("no database is named: every episode gets one of its own")
    default = Server()
    return Server(
        host=parts.hostname or default.host,
        port=parts.port or default.port,
        socket=given.get("socket", [""])[-1],
        user=unquote(parts.username or default.user),
        password=unquote(parts.password or ""),
        ssl=given.get("ssl", ["false"])[-1].lower() in ("1", "true", "yes"),
    )
