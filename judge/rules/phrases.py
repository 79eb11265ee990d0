"""Written criteria decided by rules: those that say word for word what a rubric of the built-in vocabulary says."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import msgspec

from judge.rules.engine import decide_all
from judge.transcript import Transcript
from stream_rl.rubrics.vocabulary import builtin
from stream_rl.types import TagValue

# To "avoid" something is satisfied by what its rubric calls positive, too.
_SCORES: dict[TagValue, float] = {"positive": 1.0, "violation": 0.0}


class RuleScore(msgspec.Struct, frozen=True, kw_only=True):
    """How far rules find a criterion satisfied."""

    score: float | None  # 1 or 0; None where they cannot tell
    reason: str  # names the deciding turn


_UNKNOWN = RuleScore(score=None, reason="no rule decides this")


def score_all(transcript: Transcript, criteria: Sequence[str]) -> tuple[RuleScore, ...]:
    """A score for each criterion, in order."""
    rubrics = [rubric_of(criterion) for criterion in criteria]
    findings = decide_all(transcript, tuple(dict.fromkeys(r for r in rubrics if r is not None)))
    return tuple(
        RuleScore(score=_SCORES.get(findings[rubric].value), reason=findings[rubric].reason)
        if rubric is not None
        else _UNKNOWN
        for rubric in rubrics
    )


def rubric_of(criterion: str) -> str | None:
    """The built-in rubric whose hint or avoid phrase this is; case, spacing and a final stop do not matter."""
    return _phrases().get(_plain(criterion))


@cache
def _phrases() -> dict[str, str]:
    return {_plain(phrase): rubric.id for rubric in builtin().rubrics for phrase in (rubric.hint, rubric.avoid)}


def _plain(text: str) -> str:
    return " ".join(text.split()).removesuffix(".").rstrip().casefold()
