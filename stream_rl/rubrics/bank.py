"""The rubric bank: written criteria that went with success before, kept across updates. Pure.

Beyond the seed, optional (`algorithm.rubric_bank`): what it proposes competes with the bundles the policy has just
written, as one more candidate.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import msgspec

from stream_rl.rubrics.bundles import MAX_CRITERIA, MIN_CRITERIA

_ENDS = " \t\n.,;:!\"'`*-"  # what two writings of one criterion may differ by, at either end


class BankedCriterion(msgspec.Struct, frozen=True, kw_only=True):
    """One criterion and how it has correlated with outcomes."""

    text: str  # as it was first written
    alignment: float  # moving mean of its Spearman correlation with the outcomes of a group, -1 to 1
    observations: int  # groups behind that mean
    observed: int  # newest round in which it was observed


class RubricBank:
    """Criteria of one environment with their observed alignment and age.

    The moving mean weighs a new observation by max(`rate`, 1 / observations): a plain mean at first, exponential
    later. Age is the number of updates since the last observation, so that what the policy has outgrown goes. At most
    `capacity` criteria are kept; the aged out go first, then the worst aligned, then the oldest.
    """

    def __init__(self, *, rate: float = 0.2, max_age: int = 20, capacity: int = 256, min_observations: int = 2) -> None:
        """`rate` in (0, 1], `max_age` in updates, `min_observations` before a criterion may be proposed."""
        if not 0 < rate <= 1:
            raise ValueError(f"rate is {rate}; a moving mean needs 0 < rate <= 1")
        if capacity < MAX_CRITERIA:
            raise ValueError(f"a bank of {capacity} criteria cannot hold a bundle of {MAX_CRITERIA}")
        self._rate = rate
        self._max_age = max_age
        self._capacity = capacity
        self._min_observations = min_observations
        self._criteria: dict[str, BankedCriterion] = {}

    def __len__(self) -> int:
        return len(self._criteria)

    def observe(self, criteria: Sequence[str], per_criterion_rho: Sequence[float | None], round_: int) -> None:
        """Take in how each criterion correlated with the outcomes of one group of round `round_`.

        An undefined correlation (None, NaN) says nothing and does not make a criterion younger. Of a criterion that
        stands twice, the first counts.

        Raises `ValueError` when the two sequences differ in length.
        """
        if len(criteria) != len(per_criterion_rho):
            raise ValueError(f"{len(criteria)} criteria with {len(per_criterion_rho)} correlations")
        seen: set[str] = set()
        for text, rho in zip(criteria, per_criterion_rho, strict=True):
            key = normalise_criterion(text)
            if not key or key in seen or rho is None or math.isnan(rho):
                continue
            seen.add(key)
            self._criteria[key] = self._updated(self._criteria.get(key), text, rho, round_)
        self._evict(round_)

    def propose(self, round_: int, *, size: int = MAX_CRITERIA) -> tuple[str, ...] | None:
        """The best aligned criteria as a bundle of 5 to `size` for round `round_`; None when fewer than 5 qualify.

        A criterion qualifies with enough observations, an age of at most `max_age`, and (ours) a positive alignment:
        one that goes with failure is no advice. Ties go to the younger, then by text.
        """
        if not MIN_CRITERIA <= size <= MAX_CRITERIA:
            raise ValueError(f"a bundle holds {MIN_CRITERIA} to {MAX_CRITERIA} criteria, not {size}")
        fit = [
            (-c.alignment, -c.observed, key)
            for key, c in self._criteria.items()
            if c.observations >= self._min_observations and c.alignment > 0 and not self._aged(c, round_)
        ]
        if len(fit) < MIN_CRITERIA:
            return None
        return tuple(self._criteria[key].text for _, _, key in sorted(fit)[:size])

    def state(self) -> str:
        """The criteria, as JSON for the ledger."""
        return msgspec.json.encode([self._criteria[key] for key in sorted(self._criteria)]).decode()

    def restore(self, text: str | None) -> None:
        """Go on from `state`'s text; None leaves the bank empty. A smaller bank keeps the best."""
        kept = msgspec.json.decode(text, type=tuple[BankedCriterion, ...]) if text is not None else ()
        self._criteria = {normalise_criterion(c.text): c for c in kept}
        self._evict(max((c.observed for c in kept), default=0))

    def _updated(self, old: BankedCriterion | None, text: str, rho: float, round_: int) -> BankedCriterion:
        if old is None:
            return BankedCriterion(text=" ".join(text.split()), alignment=rho, observations=1, observed=round_)
        count = old.observations + 1
        weight = max(self._rate, 1 / count)
        return BankedCriterion(
            text=old.text,
            alignment=old.alignment + weight * (rho - old.alignment),
            observations=count,
            observed=max(old.observed, round_),
        )

    def _aged(self, criterion: BankedCriterion, round_: int) -> bool:
        return round_ - criterion.observed > self._max_age

    def _evict(self, round_: int) -> None:
        def worth(key: str) -> tuple[bool, float, int, str]:
            criterion = self._criteria[key]
            return (self._aged(criterion, round_), -criterion.alignment, -criterion.observed, key)

        for key in sorted(self._criteria, key=worth)[self._capacity :]:
            del self._criteria[key]


def normalise_criterion(text: str) -> str:
    """The key of a criterion: case, spacing, and marks at either end do not make two of one.

    >>> normalise_criterion(" Searches each  place once. ")
    'searches each place once'
    """
    return re.sub(r"\s+", " ", text).strip(_ENDS).casefold()
