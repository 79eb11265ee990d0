"""One AppWorld server's calls over HTTP: a JSON body in, what stands under "output" out."""

from __future__ import annotations

import http.client
import time
from typing import Any
from urllib.parse import urlsplit

import msgspec

LIMIT_BYTES = 64 << 20  # of one answer
_CHUNK_BYTES = 1 << 20
_TOLD_CHARACTERS = 500


class ServerTrouble(Exception):
    """A call has no usable answer. The message names the call and what came instead."""


class Gone(ServerTrouble):
    """Nobody listens there, or whoever did ended before the answer."""


class Overdue(ServerTrouble):
    """No answer in time, or one without end. The server is still busy with it."""


class Refusal(ServerTrouble):
    """An answer, but not to what was asked: an error of the server, or something else than AppWorld."""


class Client:
    """Calls to one address. Every call has a connection of its own: AppWorld stops the clock its server would keep
    them alive by. Proxies of the environment are not asked.
    """

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{address!r} is no address; expected http://host:port")
        self.address = address.rstrip("/")
        self._secure = parts.scheme == "https"
        self._host = parts.hostname
        self._port = parts.port
        self._path = parts.path.rstrip("/")

    def call(self, name: str, body: dict[str, Any], timeout_s: float) -> Any:
        """POST, decoded. Raises `ServerTrouble`."""
        data = self._exchange("POST", name, msgspec.json.encode(body), timeout_s)
        try:
            return msgspec.json.decode(data)["output"]
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
            raise Refusal(f"{self.address}/{name}: not an answer of AppWorld: {_told(data)}") from None

    def greet(self, timeout_s: float) -> None:
        """Whether somebody answers. Raises `ServerTrouble`."""
        self._exchange("GET", "", None, timeout_s)

    def _exchange(self, method: str, name: str, body: bytes | None, timeout_s: float) -> bytes:
        where = f"{self.address}/{name}"
        until = time.monotonic() + timeout_s
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=max(timeout_s, 0.001))
        try:
            connection.request(method, f"{self._path}/{name}", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            data = bytearray()
            while chunk := answer.read(_CHUNK_BYTES):
                data += chunk
                if len(data) > LIMIT_BYTES:
                    raise Overdue(f"{where}: the answer is longer than {LIMIT_BYTES >> 20} MiB")
                if time.monotonic() > until:
                    raise TimeoutError("the answer came too slowly")
        except TimeoutError:
            raise Overdue(f"{where}: no answer within {timeout_s:.3g} s") from None
        except (OSError, http.client.HTTPException) as error:
            raise Gone(f"{where}: {type(error).__name__}: {error}") from None
        finally:
            connection.close()
        if answer.status != http.client.OK:
            raise Refusal(f"{where}: {answer.status}: {_told(bytes(data))}")
        return bytes(data)


def _told(data: bytes) -> str:
    return repr(data[:_TOLD_CHARACTERS].decode(errors="replace"))
