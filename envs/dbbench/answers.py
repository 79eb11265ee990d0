"""Is a final answer right? Values are read as literals, never run, then compared as AgentBench compares them.

Rules of upstream's `DBResultProcessor`: a percent sign and thousands commas are dropped, nothing in its many spellings
is "0"; one value against one is equal as a number within 0.01 or as text; several are matched one to one if all are
numbers, else compared as sets. Upstream evaluates what the agent wrote as code (AgentBench issue 234); here only
literals are parsed.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterable
from typing import Any

TOLERANCE = 0.01
_LONGEST = 20_000  # characters of an answer that are parsed at all
_NOTHING = frozenset({"", "none", "null", "undefined", "nan", "inf", "infinity", "-inf", "-infinity"})
_ITEM = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([^,]*))\s*(?:,|$)""")


def parse_answer(text: str) -> list[str]:
    """The values of an answer as it was written: a list literal, or one bare value.

    >>> parse_answer("['1,200', (3.5,), None]")
    ['1,200', '3.5', 'None']
    >>> parse_answer("__import__('os').getcwd()")
    ["__import__('os').getcwd()"]
    """
    text = text.strip()[:_LONGEST]
    if not (text.startswith("[") and text.endswith("]")):
        return [_bare(text)]
    literal = _literal(text)
    return _items(text[1:-1]) if literal is None else [_bare(_unwrap(item)) for item in literal]


def values(answer: object) -> list[str]:
    """The values of an answer that came as JSON: a list of them, one, or text as in `parse_answer`."""
    if isinstance(answer, str):
        return parse_answer(answer)
    return [_bare(_unwrap(item)) for item in answer] if isinstance(answer, list) else [_bare(answer)]


def normalise(value: str) -> str:
    """One value as it is compared.

    >>> [normalise(v) for v in ("12.5 %", "1,234", "NULL", " St. Kilda ")]
    ['12.5', '1234', '0', 'St. Kilda']
    """
    value = value.strip()
    if value.endswith("%"):
        return value[:-1].strip()
    if not value.startswith("[") and not value.endswith("]"):
        value = value.replace(",", "")
    return "0" if value.lower() in _NOTHING else value


def right(answer: Iterable[str], expected: Iterable[str]) -> bool:
    """Whether the values of an answer are those expected."""
    given, wanted = [normalise(v) for v in answer], [normalise(v) for v in expected]
    numbers, wanted_numbers = _numbers(given), _numbers(wanted)
    if numbers is not None and wanted_numbers is not None:
        # On a line, if any one-to-one matching within the tolerance exists, that of the sorted values is one.
        return len(numbers) == len(wanted_numbers) and all(
            abs(a - b) <= TOLERANCE for a, b in zip(sorted(numbers), sorted(wanted_numbers), strict=True)
        )
    return set(given) == set(wanted)


def _literal(text: str) -> list[Any] | None:
    try:
        return _as_list(json.loads(text))
    except (ValueError, RecursionError):
        pass
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "\d" in an agent's string is no concern of ours
            return _as_list(ast.literal_eval(text))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None


def _as_list(value: object) -> list[Any] | None:
    return value if isinstance(value, list) else None


def _unwrap(item: object) -> object:
    """A row of one column is its value, whether it was written as a tuple or as a list."""
    return item[0] if isinstance(item, tuple | list) and len(item) == 1 else item


def _bare(value: object) -> str:
    return str(value).strip().strip("'\"")


def _items(text: str) -> list[str]:
    """What stands between commas, for a list that is no literal: `[Ole Mørk, "a, b"]`."""
    items, at = [], 0
    while at < len(text):
        found = _ITEM.match(text, at)
        if found is None:  # text after a closing quote: up to the next comma it is one value
            end = text.find(",", at) if "," in text[at:] else len(text)
            items.append(_bare(text[at:end]))
            at = end + 1
        else:
            items.append(_bare(next(group for group in found.groups() if group is not None)))
            at = found.end()
    return items


def _numbers(texts: list[str]) -> list[float] | None:
    try:
        return [float(text) for text in texts]
    except ValueError:
        return None
