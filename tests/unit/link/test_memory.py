from __future__ import annotations

import asyncio
import selectors

import anyio
import anyio.lowlevel
import pytest

from stream_rl.errors import LinkError
from stream_rl.link.codec import Decoder
from stream_rl.link.limits import Limits
from stream_rl.link.memory import MemoryHub, open_memory_hub
from stream_rl.messages import GroupClosed, ToOrchestrator, ToProducer
from stream_rl.ports import PeerJoined, PeerLeft, Received


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose clock jumps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        self.virtual_s = 0.0
        loop = self

        class Selector(selectors.SelectSelector):
            def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
                loop.virtual_s += timeout or 0.0
                return super().select(0)

        super().__init__(Selector())

    def time(self) -> float:
        return self.virtual_s


def test_an_hour_of_silence_passes_at_once_in_virtual_time() -> None:
    limits = Limits(heartbeat_s=60.0, silence_s=3600.0, goodbye_s=1.0)

    async def lose_touch(hub: MemoryHub) -> None:
        receive = Decoder[ToProducer](ToProducer)
        async with hub.connect(role="producer", name="p", receive=receive, limits=limits) as link:
            events = aiter(hub)
            assert isinstance(await anext(events), PeerJoined)
            await anyio.sleep(10_000)  # heartbeats keep it alive
            await link.send(GroupClosed(group_id="g"))
            event = await anext(events)
            assert isinstance(event, Received)
            event.ack()
            hub.cut("p")
            left = await anext(events)
            assert isinstance(left, PeerLeft)
            assert left.reason.startswith("silent for 36")
            await anext(aiter(link))

    async def main() -> float:
        async with open_memory_hub(limits=limits) as hub:
            with pytest.raises(LinkError, match="silent"):
                await lose_touch(hub)
            return anyio.current_time()

    virtual_s: float = anyio.run(main, backend_options={"loop_factory": VirtualLoop})
    assert 13_000 < virtual_s < 14_000


async def test_a_lost_goodbye_is_repeated_long_before_the_next_heartbeat() -> None:
    limits = Limits(heartbeat_s=30.0, silence_s=90.0, goodbye_s=20.0)
    receive = Decoder[ToProducer](ToProducer)
    async with (
        open_memory_hub(limits=limits) as hub,
        hub.connect(role="producer", name="p", receive=receive, limits=limits) as link,
    ):
        assert isinstance(await anext(aiter(hub)), PeerJoined)
        hub.cut("p")
        with anyio.fail_after(10):  # of the 20 s it would wait for
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(hub.aclose)
                for _ in range(10):
                    await anyio.lowlevel.checkpoint()
                hub.restore("p")
                assert [delivery async for delivery in link] == []


async def test_cutting_an_unknown_client_names_the_known_ones() -> None:
    hub = MemoryHub(Decoder[ToOrchestrator](ToOrchestrator), Limits())
    with pytest.raises(LinkError, match="no client p ever connected; there are none"):
        hub.cut("p")
