"""A share over the last events. Pure."""

from __future__ import annotations

from collections import deque

WINDOW = 100  # events


class RecentShare:
    """How large a part of the last events was of one kind. An event may be so in part."""

    def __init__(self) -> None:
        self._parts: deque[float] = deque()
        self._sum = 0.0

    def push(self, part: float) -> None:
        """One more event; `part` from 0 (not of that kind) to 1."""
        if len(self._parts) == WINDOW:
            self._sum -= self._parts.popleft()
        self._parts.append(part)
        self._sum += part

    @property
    def value(self) -> float:
        """0 to 1; 0 before the first event."""
        return self.cautious(0) if self._parts else 0.0

    def cautious(self, others: int) -> float:
        """The share as if `others` events not of that kind had come before, so that one event proves little."""
        return min(1.0, max(0.0, self._sum / (len(self._parts) + others)))  # sums of fractions are not exact
