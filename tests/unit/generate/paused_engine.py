"""An engine's side of a weight update, in memory, with faults put in on purpose."""

from __future__ import annotations

from collections.abc import Sequence

import anyio

from stream_rl.generate import probe
from stream_rl.types import WeightsManifest

HANG, LOST, IGNORED = "hang", "lost", "ignored"  # no effect, no answer; effect, no answer; no effect, an answer


class EngineTwin:
    """`WeightCalls` over a few variables. `faults` maps a call to what happens the first times it is made."""

    def __init__(self, **faults: list[str | Exception]) -> None:
        self.faults = faults
        self.calls: list[str] = []
        self.is_paused = False
        self.gave_up = False
        self.held = "0"  # label
        self.loaded: str | None = None
        self.says: Sequence[float] = [-1.0] * probe.PROMPT_TOKENS

    async def _meet(self, call: str) -> bool:
        """Whether the call has its effect."""
        self.calls.append(call)
        fault = self.faults[call].pop(0) if self.faults.get(call) else None
        if isinstance(fault, Exception):
            raise fault
        if fault == HANG:
            await anyio.sleep_forever()
        return fault != IGNORED

    async def pause(self) -> None:
        if await self._meet("pause"):
            self.is_paused = True

    async def start(self) -> None:
        await self._meet("start")

    async def load(self, manifest: WeightsManifest) -> None:
        if await self._meet("load"):
            assert self.is_paused
            self.loaded = manifest.path

    async def finish(self, label: str) -> None:
        if await self._meet("finish"):
            self.held = label

    async def label(self) -> str:
        await self._meet("label")
        return self.held

    async def probe(self, prompt_ids: list[int]) -> Sequence[float]:
        assert self.is_paused
        await self._meet("probe")
        return self.says

    async def resume(self) -> None:
        lost = self.faults.get("resume", [None])[:1] == [LOST]
        if await self._meet("resume"):
            self.is_paused = False
        if lost:
            await anyio.sleep_forever()

    async def paused(self) -> bool:
        return self.is_paused

    async def abandon(self) -> None:
        await self._meet("abandon")
        self.gave_up = True
