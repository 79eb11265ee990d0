"""How the run stands now: asked of its orchestrator at most once a second, however many people look."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio

from stream_rl.messages import FromControl, StatusReply, StatusRequest, ToControl

Ask = Callable[[FromControl], Awaitable[ToControl | None]]  # None: nobody answers

_FRESH_S = 1.0
_ABSENT_S = 10.0  # before asking again where nobody answered: that takes a whole deadline


class Snapshot:
    """The newest answer. Questions go out one at a time."""

    def __init__(self, ask: Ask, clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing is asked yet."""
        self._ask = ask
        self._clock = clock
        self._one = anyio.Lock()
        self._status: Mapping[str, Any] | None = None
        self._until_s = -1.0

    async def get(self) -> Mapping[str, Any] | None:
        """The orchestrator's status, a second old at most; None when nobody answers."""
        async with self._one:
            if self._clock() >= self._until_s:
                reply = await self._ask(StatusRequest())
                self._status = reply.status if isinstance(reply, StatusReply) else None
                self._until_s = self._clock() + (_FRESH_S if self._status is not None else _ABSENT_S)
            return self._status

    async def act(self, message: FromControl) -> ToControl | None:
        """Ask for a change, and forget the status from before it."""
        async with self._one:
            self._until_s = -1.0
            return await self._ask(message)
