"""A ZeroMQ socket with one owner.

All socket calls are made by the owner task and none of them waits: it sleeps until the socket's descriptor, a queued
message or a deadline wakes it, then receives until there is nothing more. So a cancelled wait loses no message, and
no two tasks or threads ever touch the socket. Sends copy. High-water marks are off, because credits bound what is in
flight; they would drop or block where nobody expects it.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import socket
import stat
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import anyio.lowlevel
import zmq

from stream_rl.errors import ConfigError
from stream_rl.link.limits import Limits
from stream_rl.link.wire import Arrive, Due

log = logging.getLogger(__name__)

BATCH = 512  # messages received before other tasks get a turn
LAST_WORD_MS = 100  # the protocol flushes before it closes; this only lets the last goodbye out of the I/O thread
RECONNECT_MS = (50, 1000)  # first pause before connecting again, and the longest
FRAME_SPARE_BYTES = 64 * 1024  # a frame header may not count against max_message_bytes


class ZmqWire:
    """A ROUTER (`bind`) or a DEALER (`connect`). Belongs to the event loop it is run in."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], opened: zmq.Socket[bytes], address: str) -> None:
        self.address = address  # bound or connected to
        self.num_unroutable = 0  # messages to peers without a connection; their flow sends them again
        self._context = context
        self._socket = opened
        self._is_router = opened.type == zmq.ROUTER
        self._queue: deque[tuple[bytes, Sequence[bytes]]] = deque()
        self._woken = anyio.Event()

    def put(self, route: bytes, parts: Sequence[bytes]) -> None:
        """Queue a wire message for the owner task."""
        self._queue.append((route, parts))
        self._woken.set()

    def wake(self) -> None:
        """Make the owner task look."""
        self._woken.set()

    async def run(self, arrive: Arrive, due: Due) -> None:
        """Own the socket until cancelled."""
        loop = asyncio.get_running_loop()
        descriptor = self._socket.fileno()
        loop.add_reader(descriptor, self.wake)
        try:
            while True:
                # A new event before looking: what is set from here on means that there is more to see.
                self._woken = anyio.Event()
                if self._receive(arrive):
                    # Nobody is judged silent while messages wait unread, so no `due` before all are in.
                    self._flush()
                    await anyio.lowlevel.checkpoint()
                    continue
                next_s = due(anyio.current_time())
                self._flush()
                # The descriptor is edge-triggered, and sending may have consumed the edge of a message that came since.
                if int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
                    self._woken.set()
                with anyio.CancelScope(deadline=next_s):
                    await self._woken.wait()
        finally:
            loop.remove_reader(descriptor)
            self._flush()

    def close(self) -> None:
        """Close the socket and its I/O thread. The owner task has ended."""
        self._socket.close(linger=LAST_WORD_MS)
        self._context.term()

    def _receive(self, arrive: Arrive) -> bool:
        """Hand over what is there. True if there is probably more."""
        for _ in range(BATCH):
            try:
                parts = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return False
            if self._is_router:
                arrive(parts[0], parts[1:])
            else:
                arrive(b"", parts)
        return True

    def _flush(self) -> None:
        while self._queue:
            route, parts = self._queue.popleft()
            try:
                self._socket.send_multipart([route, *parts] if self._is_router else parts, zmq.NOBLOCK)
            except zmq.ZMQError as error:
                if error.errno != zmq.EHOSTUNREACH:
                    raise
                self.num_unroutable += 1


def bind(address: str, limits: Limits) -> ZmqWire:
    """Open the hub's socket. Port 0 takes any free port; `ZmqWire.address` says which.

    Raises `ConfigError` for an address that is not loopback or ipc, is malformed, or is in use.
    """
    _require_local(address)
    context, router = _open(zmq.ROUTER, limits)
    router.setsockopt(zmq.ROUTER_MANDATORY, 1)
    router.setsockopt(zmq.ROUTER_HANDOVER, 1)  # a client that reconnects takes its route over from the dead connection
    try:
        router.bind(address)
    except zmq.ZMQError as error:
        context.destroy(linger=0)
        raise _explain(address, error) from None
    return ZmqWire(context, router, router.getsockopt_string(zmq.LAST_ENDPOINT))


def connect(address: str, route: bytes, limits: Limits) -> ZmqWire:
    """Open a client's socket. It connects in the background, again and again; `route` names the session.

    Raises `ConfigError` for a malformed address.
    """
    context, dealer = _open(zmq.DEALER, limits)
    dealer.setsockopt(zmq.ROUTING_ID, route)
    dealer.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS[0])
    dealer.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MS[1])
    # A connection that died without a word is found by ZeroMQ's own ping and made again well within silence_s.
    dealer.setsockopt(zmq.HEARTBEAT_IVL, max(1, round(min(limits.silence_s, 3600) * 1000 / 6)))
    try:
        dealer.connect(address)
    except zmq.ZMQError as error:
        context.destroy(linger=0)
        raise ConfigError("address", f"cannot connect to {address!r}: {error.strerror}.") from None
    return ZmqWire(context, dealer, address)


def _open(kind: int, limits: Limits) -> tuple[zmq.Context[zmq.Socket[bytes]], zmq.Socket[bytes]]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    opened = context.socket(kind)
    opened.setsockopt(zmq.LINGER, 0)
    opened.setsockopt(zmq.SNDHWM, 0)
    opened.setsockopt(zmq.RCVHWM, 0)
    opened.setsockopt(zmq.IPV6, 1)
    opened.setsockopt(zmq.MAXMSGSIZE, limits.max_message_bytes + FRAME_SPARE_BYTES)
    return context, opened


def _require_local(address: str) -> None:
    kind, _, rest = address.partition("://")
    if kind == "ipc" and rest:
        _require_unused(Path(rest))
        return
    if kind != "tcp":
        raise ConfigError("address", f"{address!r} is neither tcp://HOST:PORT nor ipc://PATH.")
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or port is None:
        raise ConfigError("address", f"{address!r} is not tcp://HOST:PORT with a port of 0 to 65535.")
    if not _is_loopback(host):
        raise ConfigError(
            "address",
            f"{address!r} can be reached from other machines, and links there need CURVE keys; "
            "bind to tcp://127.0.0.1:PORT or ipc://PATH.",
        )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _require_unused(path: Path) -> None:
    """ZeroMQ would take the path from a hub that still listens there, without a word to either."""
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise ConfigError("address", f"ipc://{path} is a file that is no socket; choose another path.")
    except OSError:
        return
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError:
            return
    raise ConfigError("address", f"another process listens on ipc://{path}; choose another path or stop it.")


def _explain(address: str, error: zmq.ZMQError) -> ConfigError:
    port = address.rpartition(":")[2]
    if error.errno == errno.EADDRINUSE and address.startswith("tcp"):
        return ConfigError("port", f"{port} is in use by another process; choose another port, 0 takes any free one.")
    if error.errno == errno.EACCES and address.startswith("tcp"):
        return ConfigError("port", f"{port} may not be bound by this user; choose one above 1023, or 0 for a free one.")
    return ConfigError("address", f"cannot bind {address!r}: {error.strerror}.")
