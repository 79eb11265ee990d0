"""Reads the tags out of whatever a judge model replied. Pure; never raises, never guesses.

What is accepted: JSON in the asked form, and what models make of it (`judge.loose_json`): other case, a bare list, a
mapping from id to tag or to an entry. What is not there, or not clear, is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from judge.loose_json import Fields, objects
from stream_rl.types import TagValue

MAX_REASON = 300  # characters kept of a reason

_VALUES: dict[str, TagValue] = {
    "positive": "positive",
    "violation": "violation",
    "not_applicable": "not_applicable",
    "n/a": "not_applicable",
}
_ID_KEYS = ("id", "rubric", "rubric_id")
_TAG_KEYS = ("tag", "value", "verdict")
_REASON_KEYS = ("reason", "rationale")


class ParsedTag(msgspec.Struct, frozen=True, kw_only=True):
    """One rubric that the reply decides."""

    value: TagValue  # never "abstained"
    reason: str  # shortened


class ParsedReply(msgspec.Struct, frozen=True, kw_only=True):
    """What a reply says about the rubrics that were asked."""

    tags: dict[str, ParsedTag]  # by rubric id, only asked ones
    missing: tuple[str, ...]  # asked but not decided, contradicted ones included
    contradicted: tuple[str, ...]  # given more than once with different tags
    unknown: int  # entries for ids that were not asked


class _Entry(msgspec.Struct):
    rubric: str
    tag: object
    reason: object


def parse_reply(text: str, asked: Sequence[str]) -> ParsedReply:
    """Tags of the `asked` rubrics in a reply. The first of equal duplicates counts; unequal ones are missing."""
    by_name = {rubric.casefold(): rubric for rubric in asked}
    tags: dict[str, ParsedTag] = {}
    contradicted: dict[str, None] = {}
    unknown = 0
    for entry in (entry for fields in objects(text) for entry in _entries_of(fields, by_name)):
        rubric = by_name.get(entry.rubric.strip().casefold())
        if rubric is None:
            unknown += 1
            continue
        value = _value(entry.tag)
        if value is None:
            continue
        if rubric not in tags:
            tags[rubric] = ParsedTag(value=value, reason=_reason(entry.reason))
        elif tags[rubric].value != value:
            contradicted[rubric] = None
    for rubric in contradicted:
        del tags[rubric]
    return ParsedReply(
        tags=tags,
        missing=tuple(r for r in asked if r not in tags),
        contradicted=tuple(contradicted),
        unknown=unknown,
    )


def _entries_of(fields: Fields, by_name: dict[str, str]) -> Iterator[_Entry]:
    """The entries one object stands for: itself, or one for each `"id": "tag"` pair."""
    rubric, tag = fields.first(_ID_KEYS), fields.first(_TAG_KEYS)
    if not isinstance(rubric, str) and isinstance(tag, str) and fields.key in by_name:
        rubric = fields.key
    if isinstance(rubric, str):
        yield _Entry(rubric, tag, fields.first(_REASON_KEYS))
        return
    for name, value in fields.values.items():
        if name in by_name and isinstance(value, str):
            yield _Entry(name, value, None)


def _value(tag: object) -> TagValue | None:
    if not isinstance(tag, str):
        return None
    return _VALUES.get("_".join(tag.strip().casefold().replace("-", " ").replace("_", " ").split()))


def _reason(reason: object) -> str:
    if not isinstance(reason, str):
        return ""
    # "\ud800" is legal JSON but has no UTF-8 form; it must not reach the ledger.
    return reason[:MAX_REASON].encode("utf-8", "replace").decode()
