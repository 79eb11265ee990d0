"""What the judge says in each world: counts of tags by rubric, kept up to date as verdicts come in."""

from __future__ import annotations

import msgspec

from stream_rl.page.rollouts import Rollouts
from stream_rl.rubrics.tag_rates import TagCounts
from stream_rl.rubrics.vocabulary import Vocabulary


class MapRow(msgspec.Struct, frozen=True, kw_only=True):
    """One rubric of the vocabulary."""

    rubric: str  # id
    skill: str  # skill it belongs to
    name: str  # a few words
    counts: dict[str, tuple[int, int, int, int]]  # world -> positive, violation, not applicable, abstained


class RubricMap(msgspec.Struct, frozen=True, kw_only=True):
    """The whole map."""

    environments: tuple[str, ...]  # worlds that have verdicts
    rows: tuple[MapRow, ...]  # in the vocabulary's order; rubrics nobody decided about are left out
    counted: int  # verdicts in the counts
    complete: bool  # False: more verdicts wait to be counted; ask again


class RubricCounts:
    """Counts verdicts of a ledger. Blocking, one thread at a time; a call counts no more than `limit` of them."""

    def __init__(self, rollouts: Rollouts, vocabulary: Vocabulary) -> None:
        """Nothing is read yet."""
        self._rollouts = rollouts
        self._vocabulary = vocabulary
        self._tags = TagCounts()
        self._counted = 0
        self._place = 0

    def read(self, limit: int) -> RubricMap:
        """Count what is new and show everything. Raises `LedgerError`."""
        newest = self._rollouts.num_verdicts()
        if newest < self._place:  # the ledger has taken verdicts back
            self._tags, self._counted, self._place = TagCounts(), 0, 0
        found = self._rollouts.verdicts(after=self._place, limit=limit)
        for place, environment, verdict in found:
            self._tags.add(environment, verdict)
            self._place = place
        self._counted += len(found)
        return self._shown(complete=len(found) < limit)

    def _shown(self, *, complete: bool) -> RubricMap:
        rates = self._tags.rates()
        rows = []
        for rubric in self._vocabulary.rubrics:
            counts = {
                world: (found.positive, found.violation, found.not_applicable, found.abstained)
                for world, by_rubric in rates.items()
                if (found := by_rubric.get(rubric.id))
            }
            if counts:
                rows.append(MapRow(rubric=rubric.id, skill=rubric.skill, name=rubric.name, counts=counts))
        return RubricMap(environments=tuple(rates), rows=tuple(rows), counted=self._counted, complete=complete)
