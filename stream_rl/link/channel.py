"""A session's flow with its waiting senders: what `HubEnd` and `LinkEnd` share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import anyio

from stream_rl.link.codec import encode
from stream_rl.link.flow import Action, Deliver, Ended, Flow, Progressed, Transmit
from stream_rl.link.frames import Frame, Payload

Ack = Callable[[], None]


class Channel:
    """Carries out the actions of one `Flow`.

    `transmit` puts a frame on the wire, `owe` asks the owner of the wire for a tick soon, `deliver` decodes a
    message for the application (it may raise `LinkError`), `ended` is told once when the session is over.
    """

    def __init__(
        self,
        flow: Flow,
        *,
        transmit: Callable[[Frame, Payload], None],
        owe: Callable[[], None],
        deliver: Callable[[Payload, Ack], None],
        ended: Callable[[Ended], None],
    ) -> None:
        self.flow = flow
        self._transmit = transmit
        self._owe = owe
        self._deliver = deliver
        self._ended = ended
        self._turn = anyio.Lock()  # first come, first served: a large message is not overtaken for ever by small ones
        self._changed = anyio.Event()

    async def send(self, message: Any) -> None:
        """Wait for credit, then queue. Cancelled while it waits: nothing was sent. Raises `LinkError`."""
        payload = encode(message)
        size = self.flow.outbox.measure(payload)
        async with self._turn:
            self.flow.require_open()
            while not self.flow.outbox.has_room(size):
                await self._changed.wait()
                self.flow.require_open()
            self._do(self.flow.send(payload, anyio.current_time()))

    async def settle(self) -> None:
        """Wait until the peer has acknowledged everything, or the session is over."""
        while self.flow.state == "open" and not self.flow.outbox.settled:
            await self._changed.wait()

    def arrive(self, frame: Frame, payload: Payload) -> None:
        """A frame of the peer. Raises `LinkError` if the peer broke the protocol."""
        for action in self.flow.receive(frame, payload, anyio.current_time()):
            self._do(action)

    def tick(self, now: float) -> float:
        """Do what is due. Returns the time of the next tick."""
        for action in self.flow.tick(now):
            self._do(action)
        return self.flow.deadline()

    def close(self, reason: str) -> None:
        """Say goodbye."""
        for action in self.flow.close(reason, anyio.current_time()):
            self._do(action)
        self._notify()

    def abandon(self, reason: str) -> None:
        """The session is over without the peer's agreement."""
        self.flow.abandon(reason)
        self._notify()

    def _acknowledge(self, seq: int) -> None:
        self.flow.acknowledge(seq)
        self._owe()

    def _do(self, action: Action) -> None:
        match action:
            case Transmit(frame, payload):
                self._transmit(frame, payload)
            case Deliver(seq, payload):
                self._deliver(payload, partial(self._acknowledge, seq))
            case Progressed():
                self._notify()
            case Ended():
                self._notify()
                self._ended(action)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
