"""One end of a session as a pure state machine: events and the time in, actions out. No socket, no clock.

Both directions of a session share it. A direction is numbered, acknowledged and granted credit by `Outbox` on one
end and `Inbox` on the other. What a broken connection loses is found in two ways: a message that comes out of order,
or a `Standing` that says more was sent than arrived. An idle end sends its standing every heartbeat, so the loss of
the last message is found as well. The receiver then asks once for the rest, and again after a heartbeat if that was
lost too.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from stream_rl.errors import LinkError
from stream_rl.link.frames import Data, Frame, Goodbye, Payload, Resume, Standing, Status, Terms
from stream_rl.link.inbox import Inbox
from stream_rl.link.limits import Limits
from stream_rl.link.outbox import Outbox, payload_bytes

GOODBYE_REPEAT_S = 0.1  # an unanswered goodbye is said again after this long


class Transmit(msgspec.Struct, frozen=True):
    """Put this on the wire."""

    frame: Frame
    payload: Payload = ()


class Deliver(msgspec.Struct, frozen=True):
    """Give this message to the application, which acknowledges `seq` once it is safe."""

    seq: int
    payload: Payload


class Progressed(msgspec.Struct, frozen=True):
    """The peer acknowledged or granted something: a sender that waits may look again."""


class Ended(msgspec.Struct, frozen=True):
    """The session is over."""

    reason: str  # for the log
    orderly: bool  # the peer said goodbye; False: it was silent for too long


Action = Transmit | Deliver | Progressed | Ended


def terms_of(limits: Limits) -> Terms:
    """What an end with these limits tells its peer."""
    return Terms(limits.window_items, limits.window_bytes, limits.max_message_bytes, limits.silence_s)


class Flow:
    """One end of one session, from the greeting to its end. Methods raise `LinkError` when the peer breaks the rules.

    States: open -> closing (we said goodbye) -> over, open -> over. Nothing leaves "over"; frames that still come
    are ignored and late acknowledgements do nothing.
    """

    def __init__(self, limits: Limits, peer: Terms, now: float) -> None:
        self.outbox = Outbox(peer)
        self.inbox = Inbox(limits)
        self.state: Literal["open", "closing", "over"] = "open"
        self.reason = ""  # why it is closing or over
        self._silence_s = limits.silence_s
        # Three chances for the peer to hear of us within its own limit, whatever ours is.
        self._heartbeat_s = min(limits.heartbeat_s, peer.silence_s / 3)
        self._heard = now
        self._spoke = now
        self._owes_status = False  # acknowledged something that the peer does not know of
        self._asked_for = -1  # `received` of our last Resume
        self._asked_at = -math.inf

    # what the application does

    def send(self, payload: Payload, now: float) -> Transmit:
        """Send a message for which `outbox.has_room`."""
        self.require_open()
        return self._say(Data(self.outbox.push(payload), self._standing()), now, payload)

    def acknowledge(self, seq: int) -> None:
        """Message `seq` is safe. The peer learns of it from the next frame, which `tick` makes if nothing else does."""
        if self.state != "over":
            self._owes_status |= self.inbox.acknowledge(seq)

    def close(self, reason: str, now: float) -> list[Action]:
        """Say goodbye. What is not acknowledged by now may be lost: wait for `outbox.settled` first."""
        if self.state != "open":
            return []
        self.state, self.reason = "closing", reason
        return [self._say(Goodbye(reason), now)]

    def abandon(self, reason: str) -> None:
        """End it here and now, without a goodbye."""
        if self.state != "over":
            self.state, self.reason = "over", reason

    def require_open(self) -> None:
        """Raises `LinkError` with the reason unless messages can still be sent."""
        if self.state != "open":
            raise LinkError(f"the link is closed: {self.reason}")

    # what the peer does

    def receive(self, frame: Frame, payload: Payload, now: float) -> list[Action]:
        """Take one frame of the peer. Raises `LinkError` if it breaks the protocol; drop the peer then."""
        if self.state == "over":
            return []
        self._heard = now
        match frame:
            case Goodbye(reason):
                return self._farewell(reason, now)
            case Data(seq, standing):
                return [*self._learn(standing), *self._take(seq, payload, now)]
            case Status(standing):
                return [*self._learn(standing), *self._look_for_loss(standing.sent, now)]
            case Resume(standing):
                return [
                    *self._learn(standing),
                    *self._send_again(standing.received, now),
                    *self._look_for_loss(standing.sent, now),
                ]
            case _:
                raise LinkError(f"{type(frame).__name__} in the middle of a session")

    # what time does

    def tick(self, now: float) -> list[Action]:
        """What is owed by now: an acknowledgement, a heartbeat, a repeated goodbye, or the end of a silent peer."""
        if self.state == "over":
            return []
        # Compared as sums, as `deadline` gives them: a difference may round to just too early, again and again.
        if now >= self._heard + self._silence_s:
            return [self._end(f"silent for {now - self._heard:.1f} s", orderly=False)]
        if self.state == "closing":
            return [self._say(Goodbye(self.reason), now)] if now >= self._spoke + GOODBYE_REPEAT_S else []
        if self._owes_status or now >= self._spoke + self._heartbeat_s:
            return [self._say(Status(self._standing()), now)]
        return []

    def deadline(self) -> float:
        """`tick` has nothing to do before this time, unless a frame or an acknowledgement comes first."""
        if self.state == "over":
            return math.inf
        pause_s = GOODBYE_REPEAT_S if self.state == "closing" else self._heartbeat_s
        return min(self._heard + self._silence_s, self._spoke + pause_s)

    # inside

    def _standing(self) -> Standing:
        box = self.inbox
        return Standing(self.outbox.sent, box.received, box.acked, box.credit_items, box.credit_bytes)

    def _say(self, frame: Frame, now: float, payload: Payload = ()) -> Transmit:
        self._spoke = now
        self._owes_status = False
        return Transmit(frame, payload)

    def _learn(self, standing: Standing) -> list[Action]:
        return [Progressed()] if self.outbox.learn(standing) else []

    def _take(self, seq: int, payload: Payload, now: float) -> list[Action]:
        if self.state != "open":
            return []
        match self.inbox.accept(seq, payload_bytes(payload)):
            case "new":
                return [Deliver(seq, payload)]
            case "duplicate":
                # The peer sends again because it does not know what arrived.
                self._owes_status = True
                return []
            case "gap":
                return self._look_for_loss(seq, now)

    def _look_for_loss(self, sent: int, now: float) -> list[Action]:
        received = self.inbox.received
        if self.state != "open" or sent <= received:
            return []
        if self._asked_for == received and now - self._asked_at < self._heartbeat_s:
            return []
        self._asked_for, self._asked_at = received, now
        return [self._say(Resume(self._standing()), now)]

    def _send_again(self, received: int, now: float) -> list[Action]:
        if self.state != "open":
            return []
        standing = self._standing()
        return [self._say(Data(seq, standing), now, payload) for seq, payload in self.outbox.after(received)]

    def _farewell(self, reason: str, now: float) -> list[Action]:
        answer = [] if self.state == "closing" else [self._say(Goodbye(reason), now)]
        return [*answer, self._end(reason, orderly=True)]

    def _end(self, reason: str, *, orderly: bool) -> Ended:
        self.state, self.reason = "over", reason
        return Ended(reason, orderly)
