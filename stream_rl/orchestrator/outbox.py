"""What waits to be sent to each peer: the actor never blocks on a slow one."""

from __future__ import annotations

import math
from typing import Generic, TypeVar

import anyio
import anyio.abc
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from stream_rl.errors import LinkError
from stream_rl.ports import Hub

M = TypeVar("M")
R = TypeVar("R")


class Outboxes(Generic[M, R]):
    """One queue and one sending task a peer. Queues are bounded by the gate's permits, links by credit."""

    def __init__(self, hub: Hub[M, R], tasks: anyio.abc.TaskGroup) -> None:
        self._hub = hub
        self._tasks = tasks
        self._queues: dict[str, MemoryObjectSendStream[M]] = {}
        self._sent: dict[str, anyio.Event] = {}

    def open(self, peer: str) -> None:
        """A peer joined."""
        send, receive = anyio.create_memory_object_stream[M](math.inf)
        self._queues[peer] = send
        self._sent[peer] = anyio.Event()
        self._tasks.start_soon(self._drain, peer, receive, self._sent[peer])

    def post(self, peer: str, message: M) -> None:
        """Queue a message. One for a peer that has left is dropped: what it held is leased again anyway."""
        queue = self._queues.get(peer)
        if queue is not None:
            queue.send_nowait(message)

    def drop(self, peer: str) -> None:
        """A peer left."""
        queue = self._queues.pop(peer, None)
        self._sent.pop(peer, None)
        if queue is not None:
            queue.close()

    async def close(self, *, deadline_s: float = 5.0) -> None:
        """Send what is queued, within a deadline."""
        for queue in self._queues.values():
            queue.close()
        with anyio.move_on_after(deadline_s):
            for sent in self._sent.values():
                await sent.wait()

    async def _drain(self, peer: str, queue: MemoryObjectReceiveStream[M], sent: anyio.Event) -> None:
        async with queue:
            async for message in queue:
                try:
                    await self._hub.send(peer, message)
                except LinkError:
                    break  # it has left; PeerLeft is on its way to the actor
        sent.set()
