"""How far two taggings of the same rollouts agree: Cohen's kappa for each rubric and over all of them. Pure.

Source: Cohen 1960, "A coefficient of agreement for nominal scales". The categories are the three tags a judge may
give; an abstention is no category, so a pair with one is left out and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from stream_rl.types import TagValue, Verdict

Pair = tuple[TagValue, TagValue]


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """Two raters on one rubric, or on all rubrics pooled.

    >>> agreement_of({("positive", "positive"): 1, ("positive", "violation"): 1}).observed
    0.5
    """

    kappa: float | None  # -1 to 1; None where chance agreement is 1, or without a pair
    observed: float | None  # share of the pairs with equal tags; None without a pair
    pairs: int  # tags that both decided
    left_out: int  # tags on which one or both abstained


class AgreementReport(msgspec.Struct, frozen=True, kw_only=True):
    """Agreement of two taggings of some rollouts."""

    verdicts: int  # rollouts tagged twice
    overall: Agreement  # all rubrics pooled
    by_rubric: dict[str, Agreement]  # rubrics that stand in both verdicts of some rollout, in their order

    def worst(self, count: int, *, min_pairs: int = 1) -> list[tuple[str, float]]:
        """The `count` lowest kappas below 1, of rubrics with `min_pairs` pairs or more; the lowest first."""
        enough = [(r, a.kappa) for r, a in self.by_rubric.items() if a.kappa is not None and a.pairs >= min_pairs]
        return sorted(((r, kappa) for r, kappa in enough if kappa < 1), key=lambda entry: entry[1])[:count]


class AgreementCounts:
    """Pairs of tags as they come in; keeps counts only, so any number of verdicts may pass."""

    def __init__(self) -> None:
        self._verdicts = 0
        self._pairs: dict[str, Counter[Pair]] = {}

    def add(self, first: Verdict, second: Verdict) -> None:
        """Two verdicts on one rollout. Rubrics that only one of them holds are passed over."""
        if first.trajectory_id != second.trajectory_id:
            raise ValueError(f"verdicts on two rollouts: {first.trajectory_id} and {second.trajectory_id}")
        self._verdicts += 1
        others = {tag.rubric: tag.value for tag in second.tags}
        for tag in first.tags:
            if tag.rubric in others:
                self._pairs.setdefault(tag.rubric, Counter())[tag.value, others[tag.rubric]] += 1

    def report(self) -> AgreementReport:
        """What has come in so far."""
        return AgreementReport(
            verdicts=self._verdicts,
            overall=agreement_of(sum(self._pairs.values(), Counter())),
            by_rubric={rubric: agreement_of(counts) for rubric, counts in self._pairs.items()},
        )


def agreement(pairs: Iterable[tuple[Verdict, Verdict]]) -> AgreementReport:
    """Agreement over pairs of verdicts, each on one rollout."""
    counts = AgreementCounts()
    for first, second in pairs:
        counts.add(first, second)
    return counts.report()


def agreement_of(counts: Mapping[Pair, int]) -> Agreement:
    """Agreement from the number of times each pair of tags was given.

    kappa = (p_o - p_e) / (1 - p_e), with p_o the observed share of equal tags and p_e the share expected of two raters
    who draw independently at their own rates. In whole numbers until the last division, so that "undefined" is exact:
    kappa = (n * equal - chance) / (n^2 - chance), chance = sum over categories of the product of both raters' counts.
    """
    decided = {pair: count for pair, count in counts.items() if "abstained" not in pair}
    first: Counter[TagValue] = Counter()
    second: Counter[TagValue] = Counter()
    for (a, b), count in decided.items():
        first[a] += count
        second[b] += count
    n = sum(decided.values())
    equal = sum(count for (a, b), count in decided.items() if a == b)
    chance = sum(first[value] * second[value] for value in first)
    return Agreement(
        kappa=(n * equal - chance) / (n * n - chance) if n * n > chance else None,
        observed=equal / n if n else None,
        pairs=n,
        left_out=sum(counts.values()) - n,
    )
