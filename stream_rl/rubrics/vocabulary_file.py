"""The text of a vocabulary file as rubrics, or everything that is wrong with it, each fault with its place. Pure."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from stream_rl.errors import ConfigError
from stream_rl.rubrics.rubric import Rubric

MAX_RUBRICS = 1_000  # every group's profile holds two numbers for each
MAX_TEXT = 1_000  # characters of one field
_KEY = "judge.vocabulary"
_FIELDS = Rubric.__struct_fields__
_SHOWN = 8  # faults told at once
_HEADER = re.compile(r"^[ \t]*\[\[[ \t]*rubrics[ \t]*\]\]", re.MULTILINE)
_ID = re.compile(r"[^\s|.]+(\.[^\s|.]+)+")
_KINDS = {bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "a table"}
# What must tell rubrics apart. The three texts a judge decides by count together: one of them may well be shared.
_DISTINCT: dict[str, tuple[str, ...]] = {
    "id": ("id",),
    "name": ("name",),
    "hint": ("hint",),
    "avoid": ("avoid",),
    "applies, positive and violation": ("applies", "positive", "violation"),
}


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    place: str  # "rubric 3 (line 20, 'a.b')"
    rubric: Rubric


def read_rubrics(text: str, name: str) -> tuple[Rubric, ...]:
    """Rubrics of a file's text (`[[rubrics]]` tables). A byte order mark at its start is no fault.

    `name` names the file in messages. Raises `ConfigError` with all faults, at most eight in full.
    """
    try:
        tree = tomllib.loads(text.removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(_KEY, f"{name}: not valid TOML: {error}.") from None
    raw = tree.get("rubrics")
    if not isinstance(raw, list) or not raw or not all(isinstance(item, dict) for item in raw):
        raise ConfigError(_KEY, f"{name} holds no [[rubrics]] table.{_instead(tree)}")
    places = _places(text, raw)
    faults = [f"unknown key {key!r} beside [[rubrics]]" for key in tree if key != "rubrics"]
    entries: list[_Entry] = []
    for place, item in zip(places, raw, strict=True):
        found = list(_faults(item))
        faults += [f"{place}: {fault}" for fault in found]
        if not found:
            entries.append(_Entry(place=place, rubric=Rubric(**item)))
    faults += _alike(entries)
    if len(raw) > MAX_RUBRICS:
        faults.append(f"{len(raw)} rubrics are more than the {MAX_RUBRICS} a vocabulary may hold")
    if faults:
        raise ConfigError(_KEY, _in_words(name, faults))
    return tuple(entry.rubric for entry in entries)


def _places(text: str, raw: list[dict[str, Any]]) -> list[str]:
    """Each entry by its number, its line where that is certain, and its id where it has one."""
    lines: list[int | None] = [text.count("\n", 0, match.start()) + 1 for match in _HEADER.finditer(text)]
    if len(lines) != len(raw):  # an inline array, or a header quoted in a text
        lines = [None] * len(raw)
    places = []
    for number, (line, item) in enumerate(zip(lines, raw, strict=True), 1):
        known = [f"line {line}"] if line is not None else []
        known += [repr(item["id"])] if isinstance(item.get("id"), str) else []
        places.append(f"rubric {number} ({', '.join(known)})" if known else f"rubric {number}")
    return places


def _faults(item: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with one entry by itself."""
    missing = [field for field in _FIELDS if field not in item]
    for key in item:
        if key not in _FIELDS:
            near = _nearest(key, missing or _FIELDS)
            yield f"unknown field {key!r}" + (f"; did you mean {near!r}?" if near else "")
    if missing:
        yield f"lacks {', '.join(missing)}"
    for field in _FIELDS:
        if field in item:
            yield from _text_faults(field, item[field])
    rubric_id, skill = item.get("id"), item.get("skill")
    if isinstance(rubric_id, str) and isinstance(skill, str) and rubric_id.strip() and skill.strip():
        if not rubric_id.startswith(f"{skill}."):
            yield f"id {rubric_id!r} does not begin with its skill {skill!r} and a full stop"
        elif not _ID.fullmatch(rubric_id):
            yield f"id {rubric_id!r} holds a space, a bar or an empty part; write it like skill.short_name"


def _text_faults(field: str, value: object) -> Iterator[str]:
    if not isinstance(value, str):
        kind = _KINDS.get(type(value), "a date or time")
        yield f"{field} is {kind} ({value!r}); write it as text in quotes"
    elif not value.strip():
        yield f"{field} is empty"
    elif len(value) > MAX_TEXT:
        yield f"{field} is {len(value):,} characters long; {MAX_TEXT:,} are the most"


def _alike(entries: Iterable[_Entry]) -> Iterator[str]:
    """Rubrics that a judge, or a reader of its verdicts, could not tell apart: case and punctuation do not count."""
    seen: dict[tuple[str, ...], _Entry] = {}
    for entry in entries:
        for what, fields in _DISTINCT.items():
            texts = [getattr(entry.rubric, field) for field in fields]
            earlier = seen.setdefault((what, *map(_normalised, texts)), entry)
            if earlier is entry:
                continue
            if texts == [getattr(earlier.rubric, field) for field in fields]:
                shown = f" {texts[0]!r}" if len(texts) == 1 else ""
                yield f"{entry.place}: {what}{shown} stands more than once, first in {earlier.place}"
            else:
                yield f"{entry.place}: {what} is the same as in {earlier.place} but for case or punctuation"


def _normalised(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold().replace("_", " "))) or text


def _instead(tree: Mapping[str, Any]) -> str:
    """What stands where the rubrics should."""
    if "rubrics" in tree:
        return " `rubrics` must be an array of tables: begin each rubric with a line [[rubrics]]."
    near = _nearest("rubrics", tree)
    return f" Did you mean [[rubrics]] where it says {near!r}?" if near else ""


def _nearest(word: str, known: Iterable[str]) -> str | None:
    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)), None)


def _in_words(name: str, faults: list[str]) -> str:
    if len(faults) == 1:
        return f"{name}: {faults[0]}."
    shown = [f"\n  {fault}" for fault in faults[:_SHOWN]]
    if len(faults) > _SHOWN:
        shown.append(f"\n  and {len(faults) - _SHOWN} more")
    return f"{name} has {len(faults)} faults:{''.join(shown)}"
