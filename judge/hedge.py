"""How many second requests may be sent for answers that are late. Pure.

Dean and Barroso, "The Tail at Scale" (2013): a second request after the 95th percentile cuts the tail for a few
percent of extra load; the budget keeps it a few percent when everything is late.
"""

from __future__ import annotations

CAP = 10.0  # hedges saved up at most, so that a quiet hour does not end in a storm
_ROUNDING = 1e-9


class HedgeBudget:
    """Hedges are at most `share` of all other requests, at any moment."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._credit = 0.0

    @property
    def enabled(self) -> bool:
        """Whether there is any budget at all."""
        return self._share > 0.0

    @property
    def available(self) -> bool:
        """Whether a hedge may be sent now."""
        return self._credit >= 1.0 - _ROUNDING

    def earn(self) -> None:
        """A request that is no hedge was sent."""
        self._credit = min(CAP, self._credit + self._share)

    def spend(self) -> None:
        """A hedge was sent; only while `available`."""
        self._credit -= 1.0
