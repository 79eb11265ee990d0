"""How many requests an endpoint is given at once: additive increase, multiplicative decrease, never above what the
configuration allows. Pure.

Plain AIMD (Chiu and Jain 1989) takes every failure for congestion, and starves on an endpoint that fails at random.
Here a cut has to prove itself: under overload, fewer requests at once are answered as fast as before; where failures
come by chance, half the requests bring half the answers. Then the cut is undone, and that share of failures is
tolerated from now on.
"""

from __future__ import annotations

import msgspec

WINDOW = 20  # outcomes looked at together, at least; at most one round of requests where that is more
CUT = 0.5  # factor of a decrease
KEPT = 0.75  # share of the answers of a round that must remain after a cut, halfway between CUT and 1
MARGIN = 0.2  # share of overload signs that is no reason to cut, above the floor; twice its spread in a window
_FORGET = 0.02  # share of the way the floor falls in a window with fewer failures


class _Cut(msgspec.Struct, frozen=True, kw_only=True):
    limit: float  # before
    share: float  # of overload signs, before
    admitted: float  # answers in a round of requests, before


class ConcurrencyLimit:
    """The limit of one endpoint.

    most: the configured concurrency, where it starts
    """

    def __init__(self, most: int) -> None:
        self._most = float(most)
        self._limit = self._most
        self._floor = 0.0  # share of overload signs that does not come from load
        self._cut: _Cut | None = None
        self.epoch = 0  # changes with each cut: outcomes of requests sent before it are not counted
        self._outcomes = 0  # of this window
        self._overloaded = 0  # of them
        self._full = False  # the limit was reached in this window

    @property
    def limit(self) -> int:
        """Requests at once now, 1 or more."""
        return int(self._limit)

    def reset(self) -> None:
        """Start again, as with a new server."""
        self._floor = 0.0
        self._cut = None
        self._set(self._most)
        self._next_window()

    def record(self, *, overloaded: bool, in_flight: int, epoch: int) -> None:
        """Count one outcome.

        overloaded: a sign of overload (refused as busy, no answer in time, a broken server or connection)
        in_flight: requests out while this one was, itself included
        epoch: `epoch` when the request was sent
        """
        if epoch != self.epoch:
            return
        self._outcomes += 1
        self._overloaded += overloaded
        self._full = self._full or in_flight >= self.limit
        if self._outcomes >= max(WINDOW, self.limit):
            self._close_window()

    def _close_window(self) -> None:
        share = self._overloaded / self._outcomes
        admitted = (1.0 - share) * self._limit
        cut, self._cut = self._cut, None
        if cut is not None and admitted < KEPT * cut.admitted:
            self._floor = max(self._floor, share)  # what half the load does not take away
            self._set(cut.limit)
        elif share > self._floor + MARGIN and self._limit > 1.0:
            self._cut = _Cut(limit=self._limit, share=share, admitted=admitted)
            self._set(max(1.0, CUT * self._limit))
        elif share <= self._floor + MARGIN:
            self._floor -= _FORGET * max(0.0, self._floor - share)
            if self._full:
                self._limit = min(self._most, self._limit + 1.0)
        self._next_window()

    def _set(self, limit: float) -> None:
        self._limit = limit
        self.epoch += 1

    def _next_window(self) -> None:
        self._outcomes = 0
        self._overloaded = 0
        self._full = False
