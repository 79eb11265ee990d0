"""The same turns under two formulas: how far two sets of advantages go together. Pure."""

from __future__ import annotations

import math

import msgspec
import numpy as np

from learner.advantages import Advantages

_CONSTANT = 1e-12  # a variance below this share of the mean square is rounding


class PairFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Two advantages of every turn. None: not defined, for want of turns or of any spread."""

    turns: int  # compared
    pearson: float | None  # correlation over all turns, -1 to 1
    kendall: float | None  # tau-b within a group, mean over the groups where it is defined
    difference: float | None  # mean |b - a|
    size_was: float | None  # mean |a|
    size_now: float | None  # mean |b|
    flipped: int  # turns whose sign is the other one
    silenced: int  # turns that had an advantage and have none
    woken: int  # turns that had none and have one


class PairSums:
    """Takes groups in one by one and keeps sums only."""

    def __init__(self) -> None:
        self._sums = np.zeros(8)  # a, b, aa, bb, ab, |b - a|, |a|, |b|
        self._turns = 0
        self._taus = 0.0
        self._groups = 0
        self._flipped = self._silenced = self._woken = 0

    def add(self, a: Advantages, b: Advantages, tau: float | None) -> None:
        """One group: both advantages of all turns of its valid members, [turns], and their `kendall`."""
        self._sums += [
            a.sum(), b.sum(), (a * a).sum(), (b * b).sum(), (a * b).sum(),
            np.abs(b - a).sum(), np.abs(a).sum(), np.abs(b).sum(),
        ]  # fmt: skip
        self._turns += len(a)
        self._flipped += int(np.count_nonzero(np.sign(a) * np.sign(b) < 0))
        self._silenced += int(np.count_nonzero((a != 0) & (b == 0)))
        self._woken += int(np.count_nonzero((a == 0) & (b != 0)))
        if tau is not None:
            self._taus += tau
            self._groups += 1

    def facts(self) -> PairFacts:
        """What has been found."""
        n = self._turns
        difference, was, now = (float(x) / n if n else None for x in self._sums[5:])
        return PairFacts(
            turns=n,
            pearson=self._pearson(),
            kendall=self._taus / self._groups if self._groups else None,
            difference=difference,
            size_was=was,
            size_now=now,
            flipped=self._flipped,
            silenced=self._silenced,
            woken=self._woken,
        )

    def _pearson(self) -> float | None:
        n = self._turns
        a, b, aa, bb, ab = (float(x) for x in self._sums[:5])
        spread_a, spread_b = n * aa - a * a, n * bb - b * b
        if spread_a <= _CONSTANT * n * aa or spread_b <= _CONSTANT * n * bb:
            return None
        return max(-1.0, min(1.0, (n * ab - a * b) / math.sqrt(spread_a * spread_b)))


def kendall(a: Advantages, b: Advantages) -> float | None:
    """Kendall's tau-b of pairs [n], ties counted on both sides; None where one side is constant. Kendall 1945.

    >>> kendall(np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0]))
    0.3333333333333333
    """
    concordant = untied_a = untied_b = 0
    for i in range(len(a) - 1):  # a row of the pair matrix at a time: [n] in memory, not [n, n]
        signs_a, signs_b = np.sign(a[i + 1 :] - a[i]), np.sign(b[i + 1 :] - b[i])
        concordant += int((signs_a * signs_b).sum())
        untied_a += int(np.count_nonzero(signs_a))
        untied_b += int(np.count_nonzero(signs_b))
    if untied_a == 0 or untied_b == 0:
        return None
    return concordant / math.sqrt(untied_a * untied_b)
