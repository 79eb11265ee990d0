"""The orchestrator's end of all links, over any wire."""

from __future__ import annotations

import logging
import math
import secrets
from collections.abc import AsyncIterator

import anyio

from stream_rl.errors import LinkError
from stream_rl.link.channel import Ack, Channel
from stream_rl.link.codec import Decoder
from stream_rl.link.flow import Flow, terms_of
from stream_rl.link.frames import PROTOCOL, Frame, Goodbye, Hello, Payload, Refused, Welcome, decode_frame, encode_frame
from stream_rl.link.limits import Limits
from stream_rl.link.mailbox import Mailbox
from stream_rl.link.wire import Wire
from stream_rl.messages import FromOrchestrator, ToOrchestrator
from stream_rl.ports import Hub, PeerJoined, PeerLeft, Received

log = logging.getLogger(__name__)

Event = PeerJoined | PeerLeft | Received[ToOrchestrator]
REMEMBERED_SESSIONS = 10_000  # ended sessions kept so that a late frame of one cannot open it again


class _Peer:
    """One session."""

    def __init__(self, key: str, route: bytes, hello: Hello, channel: Channel) -> None:
        self.key = key
        self.route = route
        self.role = hello.role
        self.name = hello.name
        self.channel = channel
        self.next_tick_s = 0.0


class HubEnd(Hub[FromOrchestrator, ToOrchestrator]):
    """Greets clients, keeps one channel for each, and merges what they send into one stream of events.

    A client that breaks the protocol is dropped and counted; the hub and the other clients go on.
    """

    def __init__(self, wire: Wire, receive: Decoder[ToOrchestrator], limits: Limits) -> None:
        self.num_dropped = 0  # peers dropped because they broke the protocol
        self.num_malformed = 0  # wire messages that were no frame, from peers and strangers
        self._id = secrets.token_hex(8)
        self._wire = wire
        self._decoder = receive
        self._limits = limits
        self._events: Mailbox[Event] = Mailbox()
        self._routes: dict[bytes, _Peer] = {}
        self._peers: dict[str, _Peer] = {}
        self._owing: dict[str, _Peer] = {}  # peers that wait for a frame from us now
        self._past: dict[bytes, str] = {}  # route of an ended session -> why it ended, oldest first
        self._next_tick_s = 0.0
        self._closing = False
        self._emptied = anyio.Event()

    @property
    def peers(self) -> tuple[str, ...]:
        """Keys of the peers that are connected now, oldest first."""
        return tuple(self._peers)

    async def send(self, peer: str, message: FromOrchestrator) -> None:
        """Queue a message for one peer; waits for credit. Raises `LinkError` if the peer has left."""
        found = self._peers.get(peer)
        if found is None:
            raise LinkError(f"cannot send {type(message).__name__}: peer {peer} has left")
        try:
            await found.channel.send(message)
        except LinkError as error:
            raise LinkError(f"cannot send {type(message).__name__} to {peer}: {error}") from None

    def __aiter__(self) -> AsyncIterator[Event]:
        """Events of all peers, in order for each peer."""
        return self._events

    async def aclose(self) -> None:
        """End in order: wait until every peer acknowledged what it was sent, say goodbye, wait for the answers.

        Each of the two waits takes `goodbye_s` at most. Iteration ends after the events that are left.
        """
        self._closing = True
        with anyio.move_on_after(self._limits.goodbye_s):
            for peer in list(self._peers.values()):
                await peer.channel.settle()
        await self.part("the hub closed")

    async def part(self, reason: str) -> None:
        """Say goodbye without waiting for acknowledgements, and wait for the answers."""
        self._closing = True
        for peer in list(self._peers.values()):
            peer.channel.close(reason)
        self._next_tick_s = -math.inf  # a goodbye is repeated sooner than the heartbeat that was planned
        self._wire.wake()
        with anyio.move_on_after(self._limits.goodbye_s):
            while self._peers:
                self._emptied = anyio.Event()
                await self._emptied.wait()
        for peer in list(self._peers.values()):
            self._forget(peer, "gave no answer to our goodbye")
        self._events.close()

    async def own_wire(self) -> None:
        """Carry frames until cancelled. One task runs this, see `stream_rl.link.running`."""
        await self._wire.run(self._arrive, self._due)

    # what the wire calls

    def _arrive(self, route: bytes, parts: list[bytes]) -> None:
        peer = self._routes.get(route)
        try:
            frame, payload = decode_frame(parts)
        except LinkError as error:
            self.num_malformed += 1
            if peer is not None:
                self._drop(peer, str(error))
            else:
                log.warning("ignored a stranger (%s): %s", route.hex(), error)
            return
        match frame:
            case Hello():
                self._greet(route, peer, frame)
            case _ if peer is not None:
                try:
                    peer.channel.arrive(frame, payload)
                except LinkError as error:
                    self._drop(peer, str(error))
            case Goodbye():
                # Its session ended here first, or our answer was lost: it only waits to hear that it may go.
                self._put(route, Goodbye("no session is open"))
            case Refused():
                pass
            case _:
                self._put(
                    route, Refused(self._past.get(route, "the hub does not know this session; was the hub restarted?"))
                )

    def _due(self, now: float) -> float:
        peers = list(self._peers.values() if now >= self._next_tick_s else self._owing.values())
        self._owing.clear()
        for peer in peers:
            peer.next_tick_s = peer.channel.tick(now)
        if now >= self._next_tick_s:
            # Traffic only moves ticks later, so the earliest known one is early enough.
            self._next_tick_s = min((peer.next_tick_s for peer in self._peers.values()), default=math.inf)
        return self._next_tick_s

    # sessions

    def _greet(self, route: bytes, peer: _Peer | None, hello: Hello) -> None:
        if peer is not None and (peer.role, peer.name) == (hello.role, hello.name):
            self._put(route, Welcome(self._id, terms_of(self._limits)))  # the first one was lost or is on its way
        elif peer is not None:
            self._drop(peer, f"says it is {hello.role} {hello.name} now")
        elif hello.protocol != PROTOCOL:
            self._put(route, Refused(f"the hub speaks link protocol {PROTOCOL}, not {hello.protocol}"))
        elif self._closing:
            self._put(route, Refused("the hub is closing"))
        elif route in self._past:
            self._put(route, Refused(self._past[route]))
        else:
            self._open(route, hello)

    def _open(self, route: bytes, hello: Hello) -> None:
        for old in list(self._peers.values()):
            if (old.role, old.name) == (hello.role, hello.name):
                self._put(old.route, Refused("replaced by a new process of the same role and name"))
                self._forget(old, "replaced by a new process")
        now = anyio.current_time()
        key = f"{hello.name}#{route.hex()}"

        def deliver(payload: Payload, ack: Ack) -> None:
            self._events.put(Received(peer=key, message=self._decoder.decode(payload), ack=ack))

        channel = Channel(
            Flow(self._limits, hello.terms, now),
            transmit=lambda frame, payload: self._put(route, frame, payload),
            owe=lambda: self._owe(peer),
            deliver=deliver,
            ended=lambda end: self._forget(peer, end.reason),
        )
        peer = _Peer(key, route, hello, channel)
        self._routes[route] = self._peers[key] = peer
        self._next_tick_s = now
        self._put(route, Welcome(self._id, terms_of(self._limits)))
        self._events.put(PeerJoined(peer=key, role=hello.role, name=hello.name))
        log.info("%s joined", key)

    def _drop(self, peer: _Peer, reason: str) -> None:
        self.num_dropped += 1
        log.warning("dropped %s: %s", peer.key, reason)
        self._put(peer.route, Refused(f"broke the link protocol: {reason}"[:1000]))
        self._forget(peer, f"broke the link protocol: {reason}")

    def _forget(self, peer: _Peer, reason: str) -> None:
        """The one place where a session leaves the tables. `PeerLeft` comes after all its messages."""
        del self._routes[peer.route]
        del self._peers[peer.key]
        self._owing.pop(peer.key, None)
        self._past[peer.route] = f"the session is over: {reason[:1000]}"
        if len(self._past) > REMEMBERED_SESSIONS:
            del self._past[next(iter(self._past))]
        peer.channel.abandon(reason)
        self._events.put(PeerLeft(peer=peer.key, reason=reason))
        log.info("%s left: %s", peer.key, reason)
        if not self._peers:
            self._emptied.set()

    def _owe(self, peer: _Peer) -> None:
        if peer.key in self._peers:
            self._owing[peer.key] = peer
            self._wire.wake()

    def _put(self, route: bytes, frame: Frame, payload: Payload = ()) -> None:
        self._wire.put(route, encode_frame(frame, payload))
