"""What a judge said how often: coverage, and the rates of the three tags, by rubric, skill and environment. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from stream_rl.types import TagValue, Verdict


class TagRates(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of tags. Rates are over decided tags: an abstention moves none of them.

    >>> TagRates(positive=3, violation=1, abstained=4).rate("positive")
    0.75
    """

    positive: int = 0  # tags
    violation: int = 0  # tags
    not_applicable: int = 0  # tags
    abstained: int = 0  # tags without a usable answer

    @property
    def decided(self) -> int:
        """Tags that are no abstention."""
        return self.positive + self.violation + self.not_applicable

    @property
    def coverage(self) -> float | None:
        """Share of all tags that were decided; None without a tag."""
        total = self.decided + self.abstained
        return self.decided / total if total else None

    def rate(self, value: TagValue) -> float | None:
        """Share of the decided tags with this value, or of all tags that abstained; None where there are none."""
        if value == "abstained":
            return None if self.coverage is None else 1.0 - self.coverage
        count: int = getattr(self, value)
        return count / self.decided if self.decided else None

    def __add__(self, other: TagRates) -> TagRates:
        return TagRates(**{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__})


class TagCounts:
    """Tags as they come in, by environment and rubric; keeps counts only."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[tuple[str, TagValue]]] = {}

    def add(self, environment: str, verdict: Verdict) -> None:
        """The tags of one rollout of `environment`."""
        counts = self._counts.setdefault(environment, Counter())
        counts.update([(tag.rubric, tag.value) for tag in verdict.tags])

    def rates(self) -> dict[str, dict[str, TagRates]]:
        """Environment (by name) -> rubric (in the order met) -> counts so far."""
        found: dict[str, dict[str, TagRates]] = {}
        for environment, counts in sorted(self._counts.items()):
            by_rubric: dict[str, dict[str, int]] = {}
            for (rubric, value), count in counts.items():
                by_rubric.setdefault(rubric, {})[value] = count
            found[environment] = {rubric: TagRates(**numbers) for rubric, numbers in by_rubric.items()}
        return found


def pooled(rates: Iterable[TagRates]) -> TagRates:
    """All counts together."""
    return sum(rates, TagRates())


def by_skill(rates: dict[str, TagRates]) -> dict[str, TagRates]:
    """Rubrics "<skill>.<name>" pooled by skill, in the order met."""
    found: dict[str, TagRates] = {}
    for rubric, numbers in rates.items():
        skill = rubric.partition(".")[0]
        found[skill] = found.get(skill, TagRates()) + numbers
    return found
