"""The life of a link end: its wire's owner task beside the block that uses it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

import anyio

from stream_rl.causes import in_words


class End(Protocol):
    """A hub's or a client's end."""

    async def own_wire(self) -> None:
        """Carry frames until cancelled."""
        ...

    async def aclose(self) -> None:
        """End in order: acknowledgements, goodbye, answer."""
        ...

    async def part(self, reason: str) -> None:
        """Goodbye and answer only. Does nothing after `aclose`."""
        ...


E = TypeVar("E", bound=End)


@asynccontextmanager
async def running(end: E) -> AsyncIterator[E]:
    """Run `end` for the length of the block; close it in order, or just say goodbye if the block fails or is cancelled.

    What the block raises leaves as it is, not wrapped in a group.
    """
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        # Shielded, because an end that is cancelled needs its wire to say goodbye. Stopped below in every case.
        owner = anyio.CancelScope(shield=True)
        tasks.start_soon(_own, end, owner)
        reason = "cancelled"
        try:
            yield end
            await end.aclose()
        except Exception as error:
            failure = error
            reason = f"failed: {in_words(error)}"
        finally:
            with anyio.CancelScope(shield=True):
                await end.part(reason[:1000])
            owner.cancel()
    if failure is not None:
        raise failure


async def _own(end: End, scope: anyio.CancelScope) -> None:
    with scope:
        await end.own_wire()
