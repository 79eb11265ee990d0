"""Hub and links without sockets, for tests: the same protocol over queues, and faults on demand.

Nothing here reads a file descriptor, so it runs under virtual time. Without heartbeats (the default) a test that
waits for ever stands still instead of ticking.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio

from stream_rl.errors import LinkError
from stream_rl.link.codec import Decoder
from stream_rl.link.frames import Role
from stream_rl.link.hub_end import HubEnd
from stream_rl.link.limits import Limits
from stream_rl.link.link_end import LinkEnd
from stream_rl.link.running import running
from stream_rl.link.wire import Arrive, Due
from stream_rl.messages import ToOrchestrator

R = TypeVar("R")
QUIET = Limits(heartbeat_s=math.inf, silence_s=math.inf)


class MemoryWire:
    """One end of the network: `others` maps a route to the wire there and the route by which it knows this one."""

    def __init__(self) -> None:
        self.others: dict[bytes, tuple[MemoryWire, bytes]] = {}
        self._arrived: deque[tuple[bytes, list[bytes]]] = deque()
        self._woken = anyio.Event()

    def put(self, route: bytes, parts: Sequence[bytes]) -> None:
        """Pass a wire message on, unless that connection is cut."""
        if route in self.others:
            other, own_route = self.others[route]
            other._arrived.append((own_route, list(parts)))
            other.wake()

    def wake(self) -> None:
        """Make the owner task look."""
        self._woken.set()

    async def run(self, arrive: Arrive, due: Due) -> None:
        """Own the wire until cancelled."""
        while True:
            self._woken = anyio.Event()
            while self._arrived:
                arrive(*self._arrived.popleft())
            with anyio.CancelScope(deadline=due(anyio.current_time())):
                await self._woken.wait()

    def close(self) -> None:
        """Nothing is held."""

    def lose(self, route: bytes) -> None:
        """Forget the messages of one connection that arrived and were not read."""
        self._arrived = deque(item for item in self._arrived if item[0] != route)


class MemoryHub(HubEnd):
    """A hub whose clients live in the same event loop."""

    def __init__(self, receive: Decoder[ToOrchestrator], limits: Limits) -> None:
        self._network = MemoryWire()
        super().__init__(self._network, receive, limits)
        self._clients: dict[str, tuple[bytes, MemoryWire]] = {}  # by name, the latest
        self._num_links = 0

    @asynccontextmanager
    async def connect(
        self, *, role: Role, name: str, receive: Decoder[R], limits: Limits = QUIET
    ) -> AsyncIterator[LinkEnd[R]]:
        """The twin of `stream_rl.link.zmq_link.open_link`."""
        self._num_links += 1
        route = self._num_links.to_bytes(4, "big")
        wire = MemoryWire()
        self._clients[name] = (route, wire)
        self.restore(name)
        try:
            async with running(
                LinkEnd(wire, hub="memory", role=role, name=name, receive=receive, limits=limits)
            ) as link:
                await link.greeted()
                yield link
        finally:
            self._network.others.pop(route, None)

    def cut(self, name: str) -> None:
        """Break the connection of a client: what is under way in either direction is lost, and what is sent now."""
        route, wire = self._client(name)
        self._network.others.pop(route, None)
        self._network.lose(route)
        wire.others.clear()
        wire.lose(b"")

    def restore(self, name: str) -> None:
        """Connect a client again after `cut`. Both ends go on once a heartbeat shows what was lost."""
        route, wire = self._client(name)
        self._network.others[route] = (wire, b"")
        wire.others[b""] = (self._network, route)

    def _client(self, name: str) -> tuple[bytes, MemoryWire]:
        if name not in self._clients:
            raise LinkError(f"no client {name} ever connected; there are {', '.join(self._clients) or 'none'}")
        return self._clients[name]


@asynccontextmanager
async def open_memory_hub(
    *, receive: Decoder[ToOrchestrator] | None = None, limits: Limits = QUIET
) -> AsyncIterator[MemoryHub]:
    """The twin of `stream_rl.link.zmq_hub.open_hub`."""
    async with running(MemoryHub(receive or Decoder(ToOrchestrator), limits)) as hub:
        yield hub
