"""People who talk to a run while it goes on."""

from __future__ import annotations

from collections.abc import Sequence

import anyio

from stream_rl.errors import LinkError
from stream_rl.link.codec import Decoder
from stream_rl.link.limits import Limits
from stream_rl.link.memory import MemoryHub
from stream_rl.messages import ToControl, Tune
from tests.unit.orchestrator.virtual.schedule import Wish

_AGAIN_S = 1.0  # pause before an unanswered question is asked again


class ScriptedPeople:
    """Ask for another depth, or for a pause."""

    def __init__(self, hub: MemoryHub, limits: Limits, wishes: Sequence[Wish]) -> None:
        self._hub = hub
        self._limits = limits
        self._wishes = wishes

    async def live(self) -> None:
        """Ask at the times wished for, each time over a link of its own, as the command does; again if that breaks."""
        began_s = anyio.current_time()
        for wish in self._wishes:
            await anyio.sleep(max(0.0, began_s + wish.after_s - anyio.current_time()))
            await self._ask(Tune(async_depth=wish.async_depth, paused=wish.paused))

    async def _ask(self, question: Tune) -> None:
        """Until there is an answer: the orchestrator may be out of reach for a while."""
        receive: Decoder[ToControl] = Decoder(ToControl)
        while True:
            try:
                async with self._hub.connect(
                    role="control", name="people", receive=receive, limits=self._limits
                ) as link:
                    await link.send(question)
                    async for delivery in link:
                        delivery.ack()
                        return
            except LinkError:
                pass
            await anyio.sleep(_AGAIN_S)
