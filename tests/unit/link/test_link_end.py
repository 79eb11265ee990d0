"""A client against a hub that is played by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest

from stream_rl.errors import LinkError
from stream_rl.link.codec import Decoder, encode
from stream_rl.link.flow import terms_of
from stream_rl.link.frames import (
    Data,
    Frame,
    Goodbye,
    Hello,
    Payload,
    Refused,
    Resume,
    Standing,
    Welcome,
    decode_frame,
    encode_frame,
)
from stream_rl.link.limits import Limits
from stream_rl.link.link_end import LinkEnd
from stream_rl.link.running import running
from stream_rl.link.wire import Arrive, Due
from stream_rl.messages import Finish, GroupClosed, ToProducer

LIMITS = Limits(window_items=4, heartbeat_s=5.0, silence_s=20.0, goodbye_s=0.0)
TERMS = terms_of(LIMITS)
NOTHING = Standing(0, 0, 0, 4, 1 << 20)


class ScriptedWire:
    """Keeps what the client says and hands it what the test says."""

    def __init__(self) -> None:
        self.said: list[Frame] = []
        self._arrived: list[list[bytes]] = []
        self._woken = anyio.Event()

    def put(self, route: bytes, parts: Sequence[bytes]) -> None:
        self.said.append(decode_frame(parts)[0])

    def wake(self) -> None:
        self._woken.set()

    async def run(self, arrive: Arrive, due: Due) -> None:
        while True:
            self._woken = anyio.Event()
            while self._arrived:
                arrive(b"", self._arrived.pop(0))
            due(anyio.current_time())
            await self._woken.wait()

    def close(self) -> None:
        """Nothing is held."""

    async def hub_sends(self, parts: list[bytes]) -> None:
        self._arrived.append(parts)
        self.wake()
        for _ in range(5):
            await anyio.lowlevel.checkpoint()

    async def hub_says(self, frame: Frame, payload: Payload = ()) -> None:
        await self.hub_sends(encode_frame(frame, payload))


@asynccontextmanager
async def client() -> AsyncIterator[tuple[ScriptedWire, LinkEnd[ToProducer]]]:
    wire = ScriptedWire()
    receive = Decoder[ToProducer](ToProducer)
    end = LinkEnd(wire, hub="tcp://hub", role="producer", name="producer-0", receive=receive, limits=LIMITS)
    async with running(end) as link:
        yield wire, link


async def test_a_message_that_overtakes_the_welcome_waits_for_it() -> None:
    async with client() as (wire, link):
        await wire.hub_says(Data(1, NOTHING), encode(Finish()))
        await wire.hub_says(Welcome("hub", TERMS))
        await link.greeted()
        await wire.hub_says(Data(2, NOTHING), encode(Finish()))
        assert [type(frame) for frame in wire.said] == [Hello, Resume]
        for seq in (1, 2):
            await wire.hub_says(Data(seq, NOTHING), encode(Finish(reason=str(seq))))
        assert [(await anext(aiter(link))).message for _ in range(2)] == [Finish(reason="1"), Finish(reason="2")]


async def test_sending_before_the_welcome_is_an_error() -> None:
    async with client() as (_, link):
        with pytest.raises(LinkError, match=r"cannot send GroupClosed to tcp://hub: the hub has not answered"):
            await link.send(GroupClosed(group_id="g"))


async def test_a_second_welcome_of_the_same_hub_is_the_same_session() -> None:
    async with client() as (wire, link):
        for _ in range(2):
            await wire.hub_says(Welcome("hub", TERMS))
        await link.send(GroupClosed(group_id="g"))


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        (encode_frame(Welcome("another hub", TERMS)), "the hub at tcp://hub was restarted"),
        (encode_frame(Refused("replaced")), "the hub at tcp://hub refused producer-0: replaced"),
        ([b"\xc1"], "the hub at tcp://hub broke the link protocol"),
        (encode_frame(Data(1, NOTHING), [b"\xc1"]), "the hub at tcp://hub broke the link protocol: undecodable"),
        (encode_frame(Data(1, NOTHING), encode(GroupClosed(group_id="g"))), "undecodable"),
    ],
)
async def test_what_ends_a_link_is_raised_by_sending_and_by_reading(parts: list[bytes], problem: str) -> None:
    async with client() as (wire, link):
        await wire.hub_says(Welcome("hub", TERMS))
        await wire.hub_says(Data(1, NOTHING), encode(Finish()))
        if len(parts) > 1:
            parts = [*encode_frame(Data(2, NOTHING)), *parts[1:]]
        await wire.hub_sends(parts)
        assert (await anext(aiter(link))).message == Finish()  # what came before it is not lost
        with pytest.raises(LinkError, match=problem):
            await anext(aiter(link))
        with pytest.raises(LinkError, match=problem):
            await link.send(GroupClosed(group_id="g"))


async def test_a_goodbye_ends_reading_without_an_error() -> None:
    async with client() as (wire, link):
        await wire.hub_says(Welcome("hub", TERMS))
        await wire.hub_says(Goodbye("the hub closed"))
        assert wire.said[-1] == Goodbye("the hub closed")
        assert [delivery async for delivery in link] == []
        with pytest.raises(LinkError, match="the hub closed"):
            await link.send(GroupClosed(group_id="g"))


async def test_a_block_that_fails_while_the_wire_is_silent_raises_what_it_raised() -> None:
    async def fail() -> None:
        async with client() as (wire, _):
            await wire.hub_says(Welcome("hub", TERMS))
            raise KeyError("a bug")

    with pytest.raises(KeyError, match="a bug"):
        await fail()
