"""The sending half of a link: numbers, credit, and what may have to be sent again. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from stream_rl.errors import LinkError, MessageTooLarge
from stream_rl.link.frames import MAX_PARTS, Payload, Standing, Terms


def payload_bytes(payload: Payload) -> int:
    """Size of a message as credit counts it."""
    return sum(map(len, payload))


class Outbox:
    """Messages on their way to a peer. Each is kept until the peer's application acknowledged it."""

    def __init__(self, peer: Terms) -> None:
        self.sent = 0  # number of the last message
        self.acked = 0  # every message up to this one is safe
        self._sent_bytes = 0
        self._credit_items = peer.window_items
        self._credit_bytes = peer.window_bytes
        self._max_bytes = min(peer.max_message_bytes, peer.window_bytes)
        self._kept: deque[Payload] = deque()  # messages acked + 1 .. sent

    @property
    def settled(self) -> bool:
        """Everything that was sent is acknowledged."""
        return self.acked == self.sent

    def measure(self, payload: Payload) -> int:
        """Bytes of a message. Raises `MessageTooLarge` for one that the peer would never take."""
        size = payload_bytes(payload)
        if size > self._max_bytes:
            raise MessageTooLarge(
                f"a message of {size} bytes is larger than the {self._max_bytes} bytes that the peer accepts; "
                "send less in one message or raise max_message_bytes and window_bytes of its limits"
            )
        if len(payload) >= MAX_PARTS:
            raise MessageTooLarge(f"a message of {len(payload) - 1} arrays; at most {MAX_PARTS - 2} fit one message")
        return size

    def has_room(self, size: int) -> bool:
        """Whether credit allows one more message of `size` bytes now."""
        return self.sent < self._credit_items and self._sent_bytes + size <= self._credit_bytes

    def push(self, payload: Payload) -> int:
        """Number and keep a message for which there is room."""
        size = self.measure(payload)
        if not self.has_room(size):
            raise LinkError(f"message {self.sent + 1} of {size} bytes would exceed the peer's credit")
        self.sent += 1
        self._sent_bytes += size
        self._kept.append(payload)
        return self.sent

    def learn(self, peer: Standing) -> bool:
        """Take the peer's acknowledgements and credit. True if either moved; numbers of the past change nothing."""
        if not peer.acked <= peer.received <= self.sent:
            raise LinkError(
                f"the peer claims to have received {peer.received} and acknowledged {peer.acked} "
                f"of {self.sent} messages"
            )
        before = (self.acked, self._credit_items, self._credit_bytes)
        while self.acked < peer.acked:
            self._kept.popleft()
            self.acked += 1
        self._credit_items = max(self._credit_items, peer.credit_items)
        self._credit_bytes = max(self._credit_bytes, peer.credit_bytes)
        return before != (self.acked, self._credit_items, self._credit_bytes)

    def after(self, received: int) -> Iterator[tuple[int, Payload]]:
        """Messages to send again to a peer that has everything up to `received`."""
        for seq, payload in enumerate(self._kept, start=self.acked + 1):
            if seq > received:
                yield seq, payload
