"""Finds the objects in whatever a model took for JSON. Pure; never raises, never guesses.

What is accepted: strict JSON, and what models make of it: code fences, text around it, single quotes, bare words,
trailing commas, deeper nesting, and replies cut off in the middle, of which the complete objects count.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import msgspec

MAX_CHARS = 200_000  # of a reply, ten times a long honest one; the rest is not looked at

# One token of loose JSON. A single-quoted string ends at a quote that is followed by punctuation, so that an
# apostrophe within it does not end it.
_TOKEN = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<double>"[^"\\]*(?:\\.[^"\\]*)*")
    | (?P<single>'[^'\\]*(?:(?:\\.|'(?!\s{0,8}(?:[,:}\]]|$)))[^'\\]*)*')
    | (?P<unclosed>["'])
    | (?P<punct>[{}\[\]:,])
    | (?P<word>[\w./%+-]+)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
# In prose a bracket is often just a bracket.
_START = re.compile(r"\{|\[(?=\s*[\[{\]\"'])")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


class Nested:
    """Stands for a list or an object within an object: it is no scalar, and what it holds is yielded by itself."""


NESTED: Final = Nested()

_Pairs: TypeAlias = list[tuple[str, object]]


class Fields(msgspec.Struct, frozen=True, kw_only=True):
    """One object of a reply."""

    values: dict[str, object]  # by key, stripped and in lower case; scalars (words of loose JSON are strings) or NESTED
    key: str  # stripped, in lower case: the key it stands under, in a list or not; empty at the top

    def first(self, keys: Sequence[str]) -> object:
        """Value of the first of these keys that is there; `NESTED`, which is never an answer, if none is."""
        return next((self.values[key] for key in keys if key in self.values), NESTED)


class _Object(msgspec.Struct):
    """A strict JSON object as its pairs, so that a repeated key is not lost."""

    pairs: _Pairs


def objects(text: str) -> Iterator[Fields]:
    """Every object of a reply, except those that contradict themselves: one key, two values."""
    # Reasoning models think aloud first, drafts included; the answer is what follows.
    text = text[:MAX_CHARS].rpartition("</think>")[2]
    try:
        whole = json.loads(text, object_pairs_hook=_Object)
    except (ValueError, RecursionError):
        found = _loose(text)
    else:
        found = _strict(whole)
    for pairs, key in found:
        values: dict[str, object] = {}
        for name, value in pairs:
            name = name.strip().casefold()
            if name in values and not (isinstance(value, str) and values[name] == value):
                break
            values[name] = value
        else:
            yield Fields(values=values, key=key.strip().casefold())


def _strict(whole: object) -> Iterator[tuple[_Pairs, str]]:
    """Every object within a decoded reply, outer ones first, with the key it stands under."""
    todo: list[tuple[object, str]] = [(whole, "")]
    while todo:
        item, key = todo.pop()
        if isinstance(item, _Object):
            yield [(name, NESTED if isinstance(value, _Object | list) else value) for name, value in item.pairs], key
            todo.extend((value, name) for name, value in reversed(item.pairs))
        elif isinstance(item, list):
            todo.extend((value, key) for value in reversed(item))


class _Frame:
    """An object or a list that is not closed yet."""

    __slots__ = ("broken", "is_object", "key", "name", "pairs", "state")
    key: str
    name: str
    broken: bool

    def __init__(self, is_object: bool, parent: _Frame | None) -> None:
        self.is_object = is_object
        # Key of the innermost object around it under which it stands.
        self.name = "" if parent is None else parent.key if parent.is_object else parent.name
        # Whatever stands where nothing can stand is not used, nor is anything inside it: it may be quoted text.
        self.broken = parent is not None and (parent.broken or not parent.expects_value)
        self.pairs: _Pairs = []
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


def _loose(text: str) -> Iterator[tuple[_Pairs, str]]:
    """Every complete object of loose JSON in `text`, inner ones first, with the key it stands under.

    A closed child is worth `NESTED` to its parent: it has been yielded, and deep nesting never becomes deep data.
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
                yield frame.pairs, frame.name
            if stack:
                stack[-1].take(NESTED)
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
