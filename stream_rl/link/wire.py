"""The transport under a link end: whole messages of parts, in order while a connection lasts, lost when it breaks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

Arrive = Callable[[bytes, list[bytes]], None]  # route of the sender, parts
Due = Callable[[float], float]  # the time now -> when to be called again


class Wire(Protocol):
    """One owner task runs it; everything else only queues and wakes."""

    def put(self, route: bytes, parts: Sequence[bytes]) -> None:
        """Queue a wire message. Never blocks; a route that is gone loses it, and the flow recovers."""
        ...

    def wake(self) -> None:
        """Make the owner call `due` soon."""
        ...

    async def run(self, arrive: Arrive, due: Due) -> None:
        """Own the transport until cancelled: hand over what arrives, call `due` in time, send what was put."""
        ...

    def close(self) -> None:
        """Release it. The owner task has ended."""
        ...
