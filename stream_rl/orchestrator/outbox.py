"""What waits to be sent to each peer: the actor never blocks on a slow one."""

from __future__ import annotations

import math
from typing import Generic, TypeVar

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from stream_rl.errors import LinkError, MessageTooLarge
from stream_rl.ports import Hub

M = TypeVar("M")
R = TypeVar("R")


class Outboxes(Generic[M, R]):
    """One queue and one sending task a peer. Queues are bounded by the gate's permits, links by credit."""

    def __init__(self, hub: Hub[M, R]) -> None:
        self._hub = hub
        self._queues: dict[str, MemoryObjectSendStream[M]] = {}
        self._all_sent: dict[str, anyio.Event] = {}
        self._waiting = 0
        self._opened_send, self._opened = anyio.create_memory_object_stream[
            tuple[str, MemoryObjectReceiveStream[M], anyio.Event]
        ](math.inf)

    @property
    def waiting(self) -> int:
        """Messages posted and not sent yet: the peer grants no credit for them."""
        return self._waiting

    async def run(self) -> None:
        """Send what is posted, until closed and everything is sent."""
        async with self._opened, anyio.create_task_group() as tasks:
            async for peer, queue, sent in self._opened:
                tasks.start_soon(self._drain, peer, queue, sent)

    def open(self, peer: str) -> None:
        """A peer joined."""
        send, receive = anyio.create_memory_object_stream[M](math.inf)
        self._queues[peer] = send
        self._all_sent[peer] = anyio.Event()
        self._opened_send.send_nowait((peer, receive, self._all_sent[peer]))

    def post(self, peer: str, message: M) -> None:
        """Queue a message. One for a peer that has left is dropped: what it held is leased again anyway."""
        if queue := self._queues.get(peer):
            queue.send_nowait(message)
            self._waiting += 1

    def drop(self, peer: str) -> None:
        """A peer left."""
        self._all_sent.pop(peer, None)
        if queue := self._queues.pop(peer, None):
            queue.close()

    def close(self) -> None:
        """Nothing more will be posted."""
        self._opened_send.close()
        for queue in self._queues.values():
            queue.close()

    async def sent(self, *, deadline_s: float = 5.0) -> None:
        """After `close`: wait until what is queued was sent, within a deadline."""
        with anyio.move_on_after(deadline_s):
            for sent in self._all_sent.values():
                await sent.wait()

    async def _drain(self, peer: str, queue: MemoryObjectReceiveStream[M], sent: anyio.Event) -> None:
        gone = False
        async with queue:
            async for message in queue:
                try:
                    if not gone:
                        await self._hub.send(peer, message)
                except MessageTooLarge:
                    raise
                except LinkError:
                    gone = True  # PeerLeft is on its way to the actor; until then its messages are dropped here
                finally:
                    self._waiting -= 1
        sent.set()
