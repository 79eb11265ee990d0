"""An event loop whose time is virtual: it jumps to the next timer when nothing else can happen.

No file descriptor is watched, so nothing but tasks, timers and worker threads can be waited for. A worker thread's
call takes no virtual time: its result is taken in once everything else that can happen at this instant has happened.
So a program runs the same way every time, although the thread is real. `rest` gives a call without a thread the same
place in the order of events.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from asyncio.base_events import BaseEventLoop
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any, TypeVar

T = TypeVar("T")
_THREAD_S = 30.0  # real seconds a worker thread may take over one call
_FOREVER_S = 86_400.0  # the longest wait asyncio asks for, which is how it waits for a timer at infinity


class StandsStill(Exception):
    """Every task waits for another one, and no timer is set: nothing can ever happen again."""


class VirtualLoop(BaseEventLoop):
    """`asyncio.Runner(loop_factory=VirtualLoop)`; time starts at 0."""

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        self._outside = 0
        self._resting: deque[asyncio.Future[None]] = deque()
        self._reports: queue.SimpleQueue[tuple[Callable[..., object], tuple[Any, ...], Context | None]] = (
            queue.SimpleQueue()
        )
        self._selector = self  # what BaseEventLoop asks for events, and so for the time to the next one

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now_s

    @contextmanager
    def outside(self) -> Iterator[None]:
        """While a worker thread works for the block, time stands still."""
        self._outside += 1
        try:
            yield
        finally:
            self._outside -= 1

    async def rest(self) -> None:
        """Return once everything else that can happen at this instant has happened."""
        future = self.create_future()
        self._resting.append(future)
        await future

    def select(self, timeout: float | None) -> list[Any]:
        """Called when a round of callbacks has run. `timeout`: to the next timer; 0: callbacks wait; None: neither."""
        if timeout == 0:
            return []
        if self._resting:
            future = self._resting.popleft()
            if not future.cancelled():
                future.set_result(None)
        elif self._outside:
            call, arguments, context = self._reports.get(timeout=_THREAD_S)
            self.call_soon(call, *arguments, context=context)
        elif timeout is None or timeout >= _FOREVER_S:
            raise StandsStill(f"nothing can happen any more at {self._now_s:.3f} s of virtual time")
        else:
            self._now_s += timeout
        return []

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle | None:
        """From the loop's own thread as `call_soon`; from another one it waits for `select`."""
        if threading.get_ident() == self._thread_id:  # type: ignore[attr-defined]
            return self.call_soon(callback, *args, context=context)
        self._reports.put((callback, args, context))
        return None

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none."""


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """`anyio.run` in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())


def running_loop() -> VirtualLoop:
    """The virtual loop this is called in."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop), "needs virtual time"
    return loop
