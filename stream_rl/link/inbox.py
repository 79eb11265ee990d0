"""The receiving half of a link: order, duplicates, acknowledgement and the credit granted for it. Pure."""

from __future__ import annotations

from typing import Literal

from stream_rl.errors import LinkError
from stream_rl.link.limits import Limits

Arrival = Literal["new", "duplicate", "gap"]


class Inbox:
    """Messages of one peer. Credit comes back with the contiguous prefix of acknowledged messages.

    Granting by prefix bounds memory on both sides: a sender keeps, and a receiver holds, one window at most. So an
    application must not make the acknowledgement of a message wait for a window of later ones.
    """

    def __init__(self, limits: Limits) -> None:
        self.received = 0  # every message up to this one has arrived
        self.acked = 0  # every message up to this one is acknowledged
        self._limits = limits
        self._received_bytes = 0
        self._acked_bytes = 0
        self._sizes: dict[int, int] = {}  # of messages acked + 1 .. received
        self._done: set[int] = set()  # acknowledged before one of their predecessors

    @property
    def credit_items(self) -> int:
        """The peer may send messages up to this number."""
        return self.acked + self._limits.window_items

    @property
    def credit_bytes(self) -> int:
        """The peer may send this many bytes, counted from the greeting."""
        return self._acked_bytes + self._limits.window_bytes

    def accept(self, seq: int, size: int) -> Arrival:
        """Judge message `seq`. Only a "new" one is delivered. Raises `LinkError` if it exceeds what was granted."""
        if seq <= self.received:
            return "duplicate"
        if seq > self.received + 1:
            return "gap"
        if size > self._limits.max_message_bytes:
            raise LinkError(f"message {seq} has {size} bytes; at most {self._limits.max_message_bytes} are accepted")
        if seq > self.credit_items or self._received_bytes + size > self.credit_bytes:
            raise LinkError(
                f"message {seq} of {size} bytes exceeds the credit granted: messages up to {self.credit_items}, "
                f"{self.credit_bytes - self._received_bytes} bytes left"
            )
        self.received = seq
        self._received_bytes += size
        self._sizes[seq] = size
        return "new"

    def acknowledge(self, seq: int) -> bool:
        """The application has made message `seq` safe. True if the acknowledged prefix grew.

        Raises `LinkError` for a message that never came or is acknowledged already.
        """
        if seq not in self._sizes or seq in self._done:
            past = seq <= self.acked or seq in self._done
            raise LinkError(f"message {seq} {'is acknowledged already' if past else 'has not been received'}")
        self._done.add(seq)
        before = self.acked
        while self.acked + 1 in self._done:
            self.acked += 1
            self._done.remove(self.acked)
            self._acked_bytes += self._sizes.pop(self.acked)
        return self.acked > before
