"""The ledger's one writer thread, awaited from the event loop."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar

import anyio
import anyio.to_thread

from stream_rl.observe.states import StateClock
from stream_rl.orchestrator.ledger import Ledger

P = ParamSpec("P")
T = TypeVar("T")


class LedgerWriter:
    """Runs ledger calls one at a time in a worker thread, in the order they were asked.

    `await writer.do(Ledger.advance, group_id, "judged", at)`
    """

    def __init__(self, ledger: Ledger, account: StateClock | None = None) -> None:
        """`account`: of the one task that calls; its time in here is counted to the state "ledger"."""
        self._ledger = ledger
        self._account = account
        self._limiter = anyio.CapacityLimiter(1)

    async def do(self, call: Callable[Concatenate[Ledger, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `call(ledger, ...)`; it has happened when this returns, even if the caller is cancelled meanwhile."""
        with self._account.during("ledger") if self._account else nullcontext():
            return await anyio.to_thread.run_sync(partial(call, self._ledger, *args, **kwargs), limiter=self._limiter)

    async def close(self) -> None:
        """Close the file."""
        await self.do(Ledger.close)
