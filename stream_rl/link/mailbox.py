"""A queue between the owner of a wire and the one task that reads from it."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

import anyio
import anyio.lowlevel

T = TypeVar("T")


class Mailbox(Generic[T]):
    """Unbounded by itself: the credits of the links bound what can be in it.

    A reader that is cancelled while it waits has taken nothing, so no item is lost. After `close`, what is left is
    read first, then iteration ends, or raises the error that closed it.
    """

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._changed = anyio.Event()
        self._closed = False
        self._error: Exception | None = None

    def put(self, item: T) -> None:
        """Append, unless closed: nobody will read it then."""
        if not self._closed:
            self._items.append(item)
            self._changed.set()

    def close(self, error: Exception | None = None) -> None:
        """No more will come. The first close decides how it ends."""
        if not self._closed:
            self._closed, self._error = True, error
            self._changed.set()

    def __aiter__(self) -> Mailbox[T]:
        return self

    async def __anext__(self) -> T:
        await anyio.lowlevel.checkpoint()
        while not self._items:
            if self._error is not None:
                raise self._error
            if self._closed:
                raise StopAsyncIteration
            self._changed = anyio.Event()
            await self._changed.wait()
        return self._items.popleft()
