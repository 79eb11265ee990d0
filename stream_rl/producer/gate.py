"""Lets groups and weight updates take turns, for runs that drain before an update."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio


class DrainGate:
    """Many groups at once, or one update: an update waits for running groups, and new groups wait for it."""

    def __init__(self) -> None:
        self._running = 0
        self._idle = anyio.Event()
        self._idle.set()
        self._open = anyio.Event()
        self._open.set()

    @asynccontextmanager
    async def group(self) -> AsyncIterator[None]:
        """A group runs while the block does."""
        while not self._open.is_set():
            await self._open.wait()
        if not self._running:
            self._idle = anyio.Event()
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()

    @asynccontextmanager
    async def update(self) -> AsyncIterator[None]:
        """An update runs while the block does, which no group does then."""
        self._open = anyio.Event()
        try:
            await self._idle.wait()
            yield
        finally:
            self._open.set()


class OpenGate:
    """The same calls for updates in flight: nobody waits."""

    @asynccontextmanager
    async def group(self) -> AsyncIterator[None]:
        """A group runs while the block does."""
        yield

    @asynccontextmanager
    async def update(self) -> AsyncIterator[None]:
        """An update runs while the block does."""
        yield
