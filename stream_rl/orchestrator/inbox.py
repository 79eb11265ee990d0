"""What wakes the orchestrator: everything that happens becomes an event here, and the actor takes them one by one.

consumes: the links of all peers, answers of judges, the stop signal, deadlines. waits for: any of them.
produces: events, in the order they came. unblocked by: the first that comes.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from typing import Self

import anyio
import anyio.abc
import msgspec

from stream_rl.messages import FromOrchestrator, ToOrchestrator
from stream_rl.orchestrator.judging import Answer, Question
from stream_rl.orchestrator.state import RunState
from stream_rl.ports import Hub, PeerJoined, PeerLeft, Received


class Judged(msgspec.Struct, frozen=True, eq=False):
    """A judge answered."""

    question: Question
    answer: Answer


class StopAsked(msgspec.Struct, frozen=True):
    """Somebody wants the run to end in order."""

    reason: str


class UpdateOverdue(msgspec.Struct, frozen=True):
    """A producer had `weights.deadline_s` for an update; whether it kept to it is seen when this is dealt with."""

    peer: str
    version: int


class Stalled(msgspec.Struct, frozen=True):
    """Nothing got done for `stall_s`."""

    seconds: float


Event = PeerJoined | PeerLeft | Received[ToOrchestrator] | Judged | StopAsked | UpdateOverdue | Stalled


class Inbox:
    """The one queue of the actor. Without bound: what may come is bounded by permits and credits."""

    def __init__(self) -> None:
        self._send, self._receive = anyio.create_memory_object_stream[Event](math.inf)
        self._tasks: anyio.abc.TaskGroup
        self._deadline_s: float  # of a weight update

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._send.aclose()
        await self._receive.aclose()

    @property
    def waiting(self) -> int:
        """Events that were not taken yet."""
        return self._receive.statistics().current_buffer_used

    def __aiter__(self) -> AsyncIterator[Event]:
        """Events as they come; the actor stops when it is finished."""
        return self._receive

    def open(
        self, tasks: anyio.abc.TaskGroup, hub: Hub[FromOrchestrator, ToOrchestrator], stop: anyio.Event, state: RunState
    ) -> None:
        """Begin to listen. It ends with `tasks`."""
        self._tasks = tasks
        self._deadline_s = state.config.weights.deadline_s
        tasks.start_soon(self._listen, hub)
        tasks.start_soon(self._watch_stop, stop)
        tasks.start_soon(self._watch_stall, state)

    async def judged(self, question: Question, answer: Answer) -> None:
        """A judge answered."""
        await self._send.send(Judged(question, answer))

    def watch_update(self, peer: str, version: int) -> None:
        """Say so when a producer's time for an update is over. Only while the inbox is open."""

        async def overdue() -> None:
            await anyio.sleep(self._deadline_s)
            await self._send.send(UpdateOverdue(peer, version))

        self._tasks.start_soon(overdue)

    async def _listen(self, hub: Hub[FromOrchestrator, ToOrchestrator]) -> None:
        async for event in hub:
            await self._send.send(event)

    async def _watch_stop(self, stop: anyio.Event) -> None:
        await stop.wait()
        await self._send.send(StopAsked("asked to stop"))

    async def _watch_stall(self, state: RunState) -> None:
        """Progress, not work in flight, is what is watched. Waiting for judges is a state with a name, no stall."""
        limit_s = state.config.stall_s
        while (quiet_s := state.quiet_s()) < limit_s:  # noqa: ASYNC110  no event tells of its absence
            await anyio.sleep(limit_s - quiet_s)
        await self._send.send(Stalled(quiet_s))
