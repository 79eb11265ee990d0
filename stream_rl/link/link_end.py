"""One role's end of its link to the orchestrator, over any wire."""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

import anyio

from stream_rl.errors import LinkError
from stream_rl.link.channel import Ack, Channel
from stream_rl.link.codec import Decoder
from stream_rl.link.flow import Ended, Flow, terms_of
from stream_rl.link.frames import (
    PROTOCOL,
    Frame,
    Goodbye,
    Hello,
    Payload,
    Refused,
    Role,
    Welcome,
    decode_frame,
    encode_frame,
)
from stream_rl.link.limits import Limits
from stream_rl.link.mailbox import Mailbox
from stream_rl.link.wire import Wire
from stream_rl.messages import ToOrchestrator
from stream_rl.ports import Delivery, Link

log = logging.getLogger(__name__)
R = TypeVar("R")


class LinkEnd(Link[ToOrchestrator, R], Generic[R]):
    """Greets the hub until it answers, then keeps one channel to it for the life of the process.

    Iteration ends when the hub said goodbye. It raises `LinkError` when the hub refused this client, broke the
    protocol, or was silent for longer than `silence_s`; so does `send` from then on.
    """

    def __init__(self, wire: Wire, *, hub: str, role: Role, name: str, receive: Decoder[R], limits: Limits) -> None:
        self._wire = wire
        self._hub = hub  # its address, for messages
        self._hello = Hello(PROTOCOL, role, name, terms_of(limits))
        self._decoder = receive
        self._limits = limits
        self._arrived: Mailbox[Delivery[R]] = Mailbox()
        self._channel: Channel | None = None
        self._hub_id = ""
        self._failure: LinkError | None = None
        self._answered = anyio.Event()  # welcomed, refused or given up
        self._over = anyio.Event()
        self._first_hello_s = math.nan
        self._next_hello_s = -math.inf

    async def send(self, message: ToOrchestrator) -> None:
        """Queue a message; waits for credit. It will arrive once, in order, through reconnects."""
        try:
            await self._open_channel().send(message)
        except LinkError as error:
            if self._failure is not None:
                raise self._failure from None
            raise LinkError(f"cannot send {type(message).__name__} to {self._hub}: {error}") from None

    def __aiter__(self) -> AsyncIterator[Delivery[R]]:
        """Messages in order."""
        return self._arrived

    async def greeted(self) -> None:
        """Wait for the hub's welcome. Raises `LinkError` if it refuses or does not answer within `silence_s`."""
        await self._answered.wait()
        if self._failure is not None:
            raise self._failure

    async def settle(self) -> None:
        """Wait until the hub has acknowledged everything that was sent, or the session is over."""
        if self._channel is not None:
            await self._channel.settle()

    async def own_wire(self) -> None:
        """Carry frames until cancelled. One task runs this, see `stream_rl.link.running`."""
        await self._wire.run(self._arrive, self._due)

    async def aclose(self) -> None:
        """Wait until the hub acknowledged everything, say goodbye, wait for the answer; `goodbye_s` for each."""
        with anyio.move_on_after(self._limits.goodbye_s):
            await self.settle()
        await self.part("closed")

    async def part(self, reason: str) -> None:
        """Say goodbye without waiting for acknowledgements, and wait for the answer."""
        if self._channel is not None and self._channel.flow.state != "over":
            self._channel.close(reason)
            self._wire.wake()
            with anyio.move_on_after(self._limits.goodbye_s):
                await self._over.wait()
        elif self._channel is None and self._failure is None:
            self._put(Goodbye(reason))  # the hub may have opened the session and its welcome be on the way
        self._arrived.close()

    def _open_channel(self) -> Channel:
        if self._channel is None:
            raise LinkError("the hub has not answered the greeting")
        return self._channel

    # what the wire calls

    def _arrive(self, route: bytes, parts: list[bytes]) -> None:
        if self._failure is not None:
            return
        try:
            frame, payload = decode_frame(parts)
            match frame:
                case Welcome():
                    self._welcomed(frame)
                case Refused(reason):
                    self._fail(f"the hub at {self._hub} refused {self._hello.name}: {reason}")
                case _ if self._channel is not None:
                    self._channel.arrive(frame, payload)
                case _:
                    pass  # sent after a welcome that was lost; the next hello brings both again
        except LinkError as error:
            self._put(Goodbye(f"the hub broke the link protocol: {error}"[:1000]))
            self._fail(f"the hub at {self._hub} broke the link protocol: {error}")

    def _due(self, now: float) -> float:
        if self._failure is not None:
            return math.inf
        if self._channel is not None:
            return self._channel.tick(now)
        if math.isnan(self._first_hello_s):
            self._first_hello_s = now
        give_up_s = self._first_hello_s + self._limits.silence_s
        if now >= give_up_s:
            self._fail(
                f"no answer from the hub at {self._hub} within {self._limits.silence_s:g} s; "
                "is the orchestrator running and the address right?"
            )
            return math.inf
        if now >= self._next_hello_s:
            self._next_hello_s = now + min(self._limits.heartbeat_s, self._limits.silence_s / 3)
            self._put(self._hello)
        return min(self._next_hello_s, give_up_s)

    # session

    def _welcomed(self, welcome: Welcome) -> None:
        if self._channel is not None:
            if welcome.hub != self._hub_id:
                self._fail(f"the hub at {self._hub} was restarted; this session ended with the old one")
            return
        self._hub_id = welcome.hub

        def deliver(payload: Payload, ack: Ack) -> None:
            self._arrived.put(Delivery(message=self._decoder.decode(payload), ack=ack))

        self._channel = Channel(
            Flow(self._limits, welcome.terms, anyio.current_time()),
            transmit=self._put,
            owe=self._wire.wake,
            deliver=deliver,
            ended=self._ended,
        )
        self._answered.set()

    def _ended(self, end: Ended) -> None:
        if end.orderly:
            log.info("%s: the hub said goodbye: %s", self._hello.name, end.reason)
            self._arrived.close()
            self._over.set()
        else:
            self._fail(f"the hub at {self._hub} was {end.reason}; it is dead or out of reach")

    def _fail(self, problem: str) -> None:
        self._failure = LinkError(problem)
        if self._channel is not None:
            self._channel.abandon(problem)
        self._arrived.close(self._failure)
        self._answered.set()
        self._over.set()

    def _put(self, frame: Frame, payload: Payload = ()) -> None:
        self._wire.put(b"", encode_frame(frame, payload))
