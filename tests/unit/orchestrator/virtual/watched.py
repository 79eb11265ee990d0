"""The orchestrator as it is, with somebody looking on after every event, and a ledger writer that can be killed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

import anyio
import anyio.lowlevel

from stream_rl.orchestrator.ledger import Ledger
from stream_rl.orchestrator.service import Orchestrator
from stream_rl.orchestrator.state import RunState
from stream_rl.orchestrator.writer import LedgerWriter
from tests.unit.orchestrator.virtual.clock import running_loop
from tests.unit.orchestrator.virtual.schedule import Life

P = ParamSpec("P")
T = TypeVar("T")


class Killed(Exception):
    """As `kill -9` would end the orchestrator: nothing after this ledger call happens."""


class MortalWriter(LedgerWriter):
    """Takes virtual time, holds the clock while the ledger works, and dies at the call its life names.

    With `threaded` the ledger works in its real thread. Without, it works in the loop's own, at the same place in the
    order of events: that saves two changes of thread a call, which is most of the real time of a schedule.
    """

    def __init__(self, ledger: Ledger, life: Life, *, mean_s: float, threaded: bool, seed: str) -> None:
        super().__init__(ledger)
        self._own_ledger = ledger
        self._life = life
        self._mean_s = mean_s
        self._threaded = threaded
        self._rng = random.Random(seed)
        self._calls = 0

    async def do(self, call: Callable[Concatenate[Ledger, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As the parent does; or the end."""
        self._calls += 1
        dies = self._life.end == "killed" and self._calls >= self._life.after_calls
        if dies and not self._life.committed:
            raise Killed
        if self._mean_s:
            await anyio.sleep(self._rng.expovariate(1 / self._mean_s))
        result = await self._do(call, *args, **kwargs)
        if dies:
            raise Killed
        return result

    async def close(self) -> None:
        """In order: whoever gets here has nothing left to lose."""
        await self._do(Ledger.close)

    async def _do(self, call: Callable[Concatenate[Ledger, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._threaded:
            with running_loop().outside():
                return await super().do(call, *args, **kwargs)
        await anyio.lowlevel.checkpoint()
        with anyio.CancelScope(shield=True):
            await running_loop().rest()
            result = call(self._own_ledger, *args, **kwargs)
        return result


class WatchedOrchestrator(Orchestrator):
    """Calls `look` when an event has been dealt with and all that it made possible has been done."""

    def __init__(self, *, writer: LedgerWriter, look: Callable[[RunState], None], **parts: Any) -> None:
        super().__init__(**parts)
        self.num_events = 0
        self._state.ledger = writer
        self._look = look

    @property
    def state(self) -> RunState:
        """What the parts share."""
        return self._state

    async def _pump(self) -> None:
        await super()._pump()
        self.num_events += 1
        self._look(self._state)
