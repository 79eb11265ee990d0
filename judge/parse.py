"""Reads the tags out of whatever a judge model replied. Pure; never raises, never guesses.

What is accepted: JSON in the asked form, and what models make of it: code fences, text around it, single quotes,
other case, a bare list, a mapping from id to tag or to an entry, deeper nesting, and replies cut off in the middle,
of which the complete entries count. What is not there, or not clear, is missing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

import msgspec

from stream_rl.types import TagValue

MAX_CHARS = 200_000  # of a reply, ten times a long honest one; the rest is not looked at
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

# One token of loose JSON. A single-quoted string ends at a quote that is followed by punctuation, so that an
# apostrophe within it does not end it.
_TOKEN = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<double>"[^"\\]*(?:\\.[^"\\]*)*")
    | (?P<single>'[^'\\]*(?:(?:\\.|'(?!\s{0,8}(?:[,:}\]]|$)))[^'\\]*)*')
    | (?P<unclosed>["'])
    | (?P<punct>[{}\[\]:,])
    | (?P<word>[\w./+-]+)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
# In prose a bracket is often just a bracket.
_START = re.compile(r"\{|\[(?=\s*[\[{\]\"'])")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


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


class _Object(msgspec.Struct):
    """A JSON object as its pairs, so that a repeated key is not lost."""

    pairs: list[tuple[str, object]]


class _Entry(msgspec.Struct):
    rubric: str
    tag: object
    reason: object


def parse_reply(text: str, asked: Sequence[str]) -> ParsedReply:
    """Tags of the `asked` rubrics in a reply. The first of equal duplicates counts; unequal ones are missing."""
    text = text[:MAX_CHARS]
    # Reasoning models think aloud first, drafts included; the answer is what follows.
    text = text.rpartition("</think>")[2]
    by_name = {rubric.casefold(): rubric for rubric in asked}
    tags: dict[str, ParsedTag] = {}
    contradicted: dict[str, None] = {}
    unknown = 0
    for entry in _entries(text, by_name):
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


def _entries(text: str, by_name: dict[str, str]) -> Iterator[_Entry]:
    try:
        whole = json.loads(text, object_pairs_hook=_Object)
    except (ValueError, RecursionError):
        for loose, name in _loose_objects(text):
            yield from _entries_of(loose, name, by_name)
        return
    todo: list[tuple[object, str]] = [(whole, "")]
    while todo:
        item, key = todo.pop()
        if isinstance(item, _Object):
            yield from _entries_of(item, key, by_name)
            todo.extend((value, name) for name, value in reversed(item.pairs))
        elif isinstance(item, list):
            todo.extend((value, "") for value in reversed(item))


def _entries_of(item: _Object, key: str, by_name: dict[str, str]) -> Iterator[_Entry]:
    """The entries one object stands for: itself, or one for each `"id": "tag"` pair."""
    fields: dict[str, object] = {}
    for name, value in item.pairs:
        name = name.strip().casefold()
        if name in fields and not (isinstance(value, str) and fields[name] == value):
            return  # the object contradicts itself
        fields[name] = value
    rubric = _first(fields, _ID_KEYS)
    tag = _first(fields, _TAG_KEYS)
    if rubric is None and tag is not None and key.strip().casefold() in by_name:
        rubric = key
    if isinstance(rubric, str):
        yield _Entry(rubric, tag, _first(fields, _REASON_KEYS))
        return
    for name, value in fields.items():
        if name in by_name and isinstance(value, str):
            yield _Entry(name, value, None)


def _first(fields: dict[str, object], keys: Sequence[str]) -> object:
    return next((fields[key] for key in keys if key in fields), None)


def _value(tag: object) -> TagValue | None:
    if not isinstance(tag, str):
        return None
    return _VALUES.get("_".join(tag.strip().casefold().replace("-", " ").replace("_", " ").split()))


def _reason(reason: object) -> str:
    if not isinstance(reason, str):
        return ""
    # "\ud800" is legal JSON but has no UTF-8 form; it must not reach the ledger.
    return reason[:MAX_REASON].encode("utf-8", "replace").decode()


class _Frame:
    """An object or a list that is not closed yet."""

    __slots__ = ("broken", "is_object", "key", "name", "pairs", "state")
    key: str
    broken: bool

    def __init__(self, is_object: bool, parent: _Frame | None) -> None:
        self.is_object = is_object
        self.name = parent.key if parent else ""  # key under which it stands in its parent
        # Whatever stands where nothing can stand is not used, nor is anything inside it: it may be quoted text.
        self.broken = parent is not None and (parent.broken or not parent.expects_value)
        self.pairs: list[tuple[str, object]] = []
        self.key = ""
        self.state = "key"  # key -> colon -> value -> comma -> key ...

    @property
    def expects_value(self) -> bool:
        """Whether a string or a child may stand here."""
        return not self.is_object or self.state == "value"

    def take(self, value: object) -> None:
        """A string, word or closed child arrives."""
        if not self.is_object:
            return
        if self.state == "key" and isinstance(value, str):
            self.key, self.state = value, "colon"
        elif self.state == "value":
            self.pairs.append((self.key, value))
            self.state = "comma"
        else:
            self.broken = True

    def punctuate(self, mark: str) -> None:
        """A colon or a comma arrives."""
        if not self.is_object:
            return
        before, after = ("colon", "value") if mark == ":" else ("comma", "key")
        if self.state == before:
            self.state = after
        else:
            self.broken = True


def _loose_objects(text: str) -> Iterator[tuple[_Object, str]]:
    """Every complete object of loose JSON in `text`, inner ones first, with the key it stands under.

    A closed child is worth None to its parent: it has been yielded, and deep nesting never becomes deep data.
    """
    stack: list[_Frame] = []
    position = _next_start(text, 0)
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup == "unclosed":
            return  # the reply was cut within a string
        position = match.end()
        kind, token = match.lastgroup, match.group()
        if token in ("{", "["):
            stack.append(_Frame(token == "{", stack[-1] if stack else None))
        elif token in ("}", "]"):
            frame = stack.pop()
            if frame.is_object and token == "}" and not frame.broken and frame.state in ("comma", "key"):
                yield _Object(frame.pairs), frame.name
            if stack:
                stack[-1].take(None)
            else:
                position = _next_start(text, position)
        elif kind == "punct":
            stack[-1].punctuate(token)
        elif kind in ("double", "single"):
            stack[-1].take(_unescape(token[1:-1]))
        elif kind == "word":
            stack[-1].take(token)
        elif kind == "other":
            stack[-1].broken = True


def _next_start(text: str, position: int) -> int:
    """Where the next object or list begins, or the end. Outside of them, quotes are apostrophes."""
    found = _START.search(text, position)
    return found.start() if found else len(text)


def _unescape(body: str) -> str:
    if "\\" not in body:
        return body

    def replace(match: re.Match[str]) -> str:
        code = match.group(1)
        return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPES.get(code, code)

    return _ESCAPE.sub(replace, body)
