"""The hub against peers that do not keep the rules, over a real socket."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import msgspec
import pytest
import zmq
import zmq.asyncio

from stream_rl.errors import ConfigError
from stream_rl.link.codec import Decoder, encode
from stream_rl.link.flow import terms_of
from stream_rl.link.frames import (
    PROTOCOL,
    Data,
    Frame,
    Goodbye,
    Hello,
    Refused,
    Resume,
    Standing,
    Status,
    Welcome,
    decode_frame,
    encode_frame,
)
from stream_rl.link.limits import Limits
from stream_rl.link.zmq_hub import ZmqHub, open_hub
from stream_rl.link.zmq_link import open_link
from stream_rl.link.zmq_wire import bind, connect
from stream_rl.messages import Finish, GroupClosed, ToOrchestrator, ToProducer
from stream_rl.ports import PeerJoined, PeerLeft, Received

LIMITS = Limits(
    window_items=2, window_bytes=10_000, max_message_bytes=5_000, heartbeat_s=0.5, silence_s=60.0, goodbye_s=0.05
)
NOTHING = Standing(0, 0, 0, 2, 10_000)
HELLO = Hello(PROTOCOL, "producer", "stranger", terms_of(LIMITS))
MESSAGE = encode(GroupClosed(group_id="g"))


class RawPeer:
    """A socket that says whatever it is told to."""

    def __init__(self, dealer: zmq.asyncio.Socket) -> None:
        self._dealer = dealer

    async def say(self, frame: Frame, payload: Sequence[bytes] = ()) -> None:
        await self.send(encode_frame(frame, payload))

    async def send(self, parts: Sequence[bytes]) -> None:
        await self._dealer.send_multipart(parts)

    async def hear(self, kind: type[Frame]) -> Frame:
        """The next frame of a kind, heartbeats and all else apart."""
        with anyio.fail_after(30):
            while True:
                frame, _ = decode_frame(await self._dealer.recv_multipart())
                if isinstance(frame, kind):
                    return frame


@contextmanager
def raw_peer(hub: ZmqHub) -> Iterator[RawPeer]:
    with zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.setsockopt(zmq.LINGER, 0)
        dealer.setsockopt(zmq.ROUTING_ID, b"\x01raw")
        dealer.connect(hub.address)
        yield RawPeer(dealer)


@asynccontextmanager
async def hub_and_peer() -> AsyncIterator[tuple[ZmqHub, RawPeer]]:
    async with open_hub(receive=Decoder[ToOrchestrator](ToOrchestrator), limits=LIMITS) as hub:
        with raw_peer(hub) as peer:
            yield hub, peer


async def still_serves(hub: ZmqHub) -> None:
    """An honest client is greeted and heard."""
    async with open_link(
        hub.address, role="producer", name="honest", receive=Decoder[ToProducer](ToProducer), limits=LIMITS
    ) as link:
        await link.send(GroupClosed(group_id="honest"))
        with anyio.fail_after(30):
            async for event in hub:
                if isinstance(event, Received):
                    assert event.message == GroupClosed(group_id="honest")
                    event.ack()
                    return


@pytest.mark.parametrize(
    "parts",
    [
        [b"\xc1 no msgpack"],
        [b""],
        [msgspec.msgpack.encode([1, 1, "admin", "x", [1, 1, 1, 1.0]])],
        [*encode_frame(Status(NOTHING)), b"payload where none belongs"],
    ],
)
async def test_a_malformed_frame_of_a_stranger_is_counted_and_ignored(parts: list[bytes]) -> None:
    async with hub_and_peer() as (hub, peer):
        await peer.send(parts)
        await peer.say(Goodbye("closed"))
        await peer.hear(Goodbye)  # so the frame before it has arrived
        await still_serves(hub)
    assert hub.num_malformed == 1
    assert hub.num_dropped == 0


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ([b"\xc1"], "not a frame"),
        (encode_frame(Data(1, NOTHING), [b"\xc1"]), "undecodable"),
        (encode_frame(Data(1, NOTHING), encode(Finish())), "undecodable"),  # a message of the other direction
        (encode_frame(Data(1, NOTHING), [b"x" * 5_001]), "at most 5000"),
        (encode_frame(Status(Standing(0, 7, 7, 9, 9)), []), "claims to have received 7"),
        (encode_frame(Hello(PROTOCOL, "learner", "other", HELLO.terms)), "says it is learner other"),
        (encode_frame(Welcome("me", HELLO.terms)), "Welcome in the middle"),
    ],
)
async def test_a_peer_that_breaks_the_protocol_is_dropped_with_a_reason(
    parts: list[bytes], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with hub_and_peer() as (hub, peer):
        events = aiter(hub)
        await peer.say(HELLO)
        joined = await anext(events)
        assert isinstance(joined, PeerJoined)
        await peer.send(parts)
        with anyio.fail_after(30):
            left = await anext(events)
        assert isinstance(left, PeerLeft)
        assert left.peer == joined.peer
        assert reason in left.reason
        refused = await peer.hear(Refused)
        assert isinstance(refused, Refused)
        assert reason in refused.reason
        await still_serves(hub)
    assert hub.num_dropped == 1
    assert any(reason in record.getMessage() for record in caplog.records)


async def test_a_peer_that_exceeds_its_credit_is_dropped_after_what_it_was_allowed() -> None:
    async with hub_and_peer() as (hub, peer):
        events = aiter(hub)
        await peer.say(HELLO)
        for seq in (1, 2, 3):
            await peer.say(Data(seq, NOTHING), MESSAGE)
        with anyio.fail_after(30):
            kinds = [type(await anext(events)) for _ in range(4)]
    assert kinds == [PeerJoined, Received, Received, PeerLeft]
    assert hub.num_dropped == 1


async def test_a_frame_above_the_size_limit_never_reaches_the_hub() -> None:
    async with hub_and_peer() as (hub, peer):
        await peer.say(HELLO)
        assert isinstance(await anext(aiter(hub)), PeerJoined)
        await peer.send(encode_frame(Data(1, NOTHING), [b"x" * 1_000_000]))  # ZeroMQ closes such a connection
        await peer.hear(Status)  # over a new connection: the session goes on
        await still_serves(hub)
        assert (hub.num_dropped, hub.num_malformed) == (0, 0)


async def test_duplicates_are_delivered_once_and_a_gap_is_asked_for() -> None:
    async with hub_and_peer() as (hub, peer):
        events = aiter(hub)
        await peer.say(HELLO)
        await peer.say(Data(2, NOTHING), MESSAGE)
        resume = await peer.hear(Resume)
        assert isinstance(resume, Resume)
        assert resume.standing.received == 0
        for seq in (1, 1, 2, 2):
            await peer.say(Data(seq, NOTHING), MESSAGE)
        await peer.say(Goodbye("closed"))
        with anyio.fail_after(30):
            kinds = [type(await anext(events)) for _ in range(4)]
    assert kinds == [PeerJoined, Received, Received, PeerLeft]


async def test_another_protocol_and_unknown_sessions_are_told_why() -> None:
    async with hub_and_peer() as (_hub, peer):
        await peer.say(Hello(PROTOCOL + 1, "producer", "newer", HELLO.terms))
        refused = await peer.hear(Refused)
        assert isinstance(refused, Refused)
        assert f"protocol {PROTOCOL}" in refused.reason
        await peer.say(Data(5, NOTHING), MESSAGE)
        refused = await peer.hear(Refused)
        assert isinstance(refused, Refused)
        assert "does not know this session" in refused.reason
        await peer.say(Goodbye("closed"))
        assert await peer.hear(Goodbye)


async def test_a_session_that_ended_cannot_be_opened_again() -> None:
    async with hub_and_peer() as (hub, peer):
        await peer.say(HELLO)
        await peer.hear(Welcome)
        await peer.say(HELLO)  # the welcome was lost: asking again is no new session
        await peer.hear(Welcome)
        await peer.say(Goodbye("closed"))
        await peer.hear(Goodbye)
        await peer.say(HELLO)
        refused = await peer.hear(Refused)
        assert isinstance(refused, Refused)
        assert refused.reason == "the session is over: closed"
        assert hub.peers == ()


async def test_a_second_connection_takes_the_session_over_from_one_that_nobody_knows_is_dead() -> None:
    async with hub_and_peer() as (hub, peer):
        events = aiter(hub)
        await peer.say(HELLO)
        await peer.hear(Welcome)
        await peer.say(Data(1, NOTHING), MESSAGE)
        with raw_peer(hub) as again:
            await again.say(Data(1, NOTHING), MESSAGE)
            answer = await again.hear(Status)
            assert isinstance(answer, Status)
            assert answer.standing.received == 1
        assert [type(await anext(events)) for _ in range(2)] == [PeerJoined, Received]
        assert len(hub.peers) == 1


def test_a_port_in_use_is_a_config_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port: {port} is in use") as caught:
            bind(f"tcp://127.0.0.1:{port}", LIMITS)
    assert caught.value.path == "port"


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("tcp://0.0.0.0:0", "CURVE"),
        ("tcp://*:0", "CURVE"),
        ("tcp://192.168.1.5:5000", "CURVE"),
        ("tcp://[::]:0", "CURVE"),
        ("tcp://eth0:0", "CURVE"),
        ("tcp://127.0.0.1.example.com:0", "CURVE"),
        ("tcp://127.0.0.1", "port"),
        ("tcp://127.0.0.1:70000", "port"),
        ("tcp://127.0.0.1:many", "port"),
        ("inproc://x", "neither"),
        ("127.0.0.1:5000", "neither"),
        ("ipc:///no/such/folder/hub", "cannot bind"),
        (f"ipc:///tmp/{'long' * 50}", "cannot bind"),
    ],
)
def test_addresses_that_cannot_be_bound_are_config_errors(address: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        bind(address, LIMITS)
    assert caught.value.path == "address"


def test_a_malformed_address_cannot_be_connected_to() -> None:
    with pytest.raises(ConfigError, match="cannot connect"):
        connect("nonsense", b"\x01x", LIMITS)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:0", "tcp://localhost:0", "tcp://127.5.5.5:0"])
def test_loopback_addresses_report_the_port_they_got(address: str) -> None:
    wire = bind(address, LIMITS)
    assert int(wire.address.rpartition(":")[2]) > 0
    wire.close()


def test_an_ipc_path_that_is_served_is_not_taken_over_and_a_stale_one_is(tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/hub"
    first = bind(address, LIMITS)
    with pytest.raises(ConfigError, match="another process listens"):
        bind(address, LIMITS)
    first.close()
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(f"{tmp_path}/stale")
    bind(f"ipc://{tmp_path}/stale", LIMITS).close()
    (tmp_path / "file").write_text("precious")
    with pytest.raises(ConfigError, match="no socket"):
        bind(f"ipc://{tmp_path}/file", LIMITS)
