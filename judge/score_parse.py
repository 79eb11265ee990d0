"""Reads the scores out of whatever a judge model replied. Pure; never raises, never guesses.

What is accepted: JSON in the asked form, and what models make of it (`judge.loose_json`): other case, numbers as
strings, percentages with their sign, a bare list, a mapping from id to score or to an entry. A boolean is no score:
a judge that answers yes or no did not say how far. What is not there, not clear or not within 0 to 1 is missing,
which is not the same as null: that is the judge's own word that the transcript does not decide.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from judge.loose_json import Fields, objects

_ID_KEYS = ("id", "criterion", "criterion_id", "number")
_SCORE_KEYS = ("score", "value", "rating")
_MAP_KEYS = frozenset({"", "scores", "criteria", "ratings"})  # where a bare `"3": 0.5` can only be a score
_NULLS = frozenset({"null", "none", "n/a", "not applicable", "not_applicable"})
_ID = re.compile(r"(?:criterion|c)?[\s_]?#?([0-9]{1,6})[.:]?")
_NUMBER = re.compile(r"([+-]?(?:[0-9]{1,20}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:e[+-]?[0-9]{1,3})?)(\s{0,4}%)?")


class ParsedScores(msgspec.Struct, frozen=True, kw_only=True):
    """What a reply says about the criteria that were asked.

    >>> parse_scores('{"scores": [{"id": 1, "score": "70%"}, {"id": 2, "score": null}]}', (1, 2, 3)).scores
    {1: 0.7, 2: None}
    """

    scores: dict[int, float | None]  # by number, only asked ones: within 0 to 1, or None where the reply says null
    missing: tuple[int, ...]  # asked but without a usable score, contradicted ones included
    contradicted: tuple[int, ...]  # given more than once with different scores
    unknown: int  # entries for numbers that were not asked


class _Unusable:
    """Something stands where a score should be."""


_UNUSABLE = _Unusable()


def parse_scores(text: str, asked: Sequence[int]) -> ParsedScores:
    """Scores of the `asked` criteria in a reply. The first of equal duplicates counts; unequal ones are missing."""
    wanted = frozenset(asked)
    scores: dict[int, float | None] = {}
    contradicted: dict[int, None] = {}
    unknown = 0
    for criterion, value in (entry for fields in objects(text) for entry in _entries_of(fields)):
        if criterion not in wanted:
            unknown += 1
            continue
        score = _score(value)
        if isinstance(score, _Unusable):
            continue
        if criterion not in scores:
            scores[criterion] = score
        elif scores[criterion] != score:
            contradicted[criterion] = None
    for criterion in contradicted:
        del scores[criterion]
    return ParsedScores(
        scores=scores,
        missing=tuple(c for c in asked if c not in scores),
        contradicted=tuple(contradicted),
        unknown=unknown,
    )


def _entries_of(fields: Fields) -> Iterator[tuple[int, object]]:
    """The entries one object stands for: itself, or one for each `"number": score` pair."""
    score = fields.first(_SCORE_KEYS)
    if any(key in fields.values for key in _ID_KEYS):
        criterion = _id(fields.first(_ID_KEYS))
    elif any(key in fields.values for key in _SCORE_KEYS):
        criterion = _id(fields.key)
    else:
        if fields.key in _MAP_KEYS:
            for name, value in fields.values.items():
                if (key := _id(name)) is not None:
                    yield key, value
        return
    if criterion is not None:
        yield criterion, score


def _id(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and (match := _ID.fullmatch(value.strip().casefold())):
        return int(match.group(1))
    return None


def _score(value: object) -> float | _Unusable | None:
    if value is None:
        return None
    if isinstance(value, str):
        return _written(value.strip().casefold())
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _within(value)
    return _UNUSABLE


def _written(text: str) -> float | _Unusable | None:
    if text in _NULLS:
        return None
    match = _NUMBER.fullmatch(text)
    if match is None:
        return _UNUSABLE
    number, percent = match.groups()
    return _within(float(number) / 100.0 if percent else float(number))


def _within(value: int | float) -> float | _Unusable:
    # Compared before the conversion: JSON integers have no bound, and NaN compares false.
    return abs(float(value)) if 0 <= value <= 1 else _UNUSABLE
