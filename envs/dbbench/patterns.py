"""LIKE and REGEXP for SQLite, as MySQL has them, in time that a hostile pattern cannot stretch.

SQLite cannot interrupt a function while it runs, and backtracking is exponential: so LIKE is matched segment by
segment, and of regular expressions only such are run as cannot explode.
"""

from __future__ import annotations

import re
from functools import lru_cache

from envs.dbbench.collation import fold

_LONGEST_PATTERN = 1000
_LONGEST_TEXT = 4000  # that a regular expression is run on
_MOST_REPEATS = 2  # unbounded quantifiers of one expression: time is at most the square of the text's length

_LIKE_PART = re.compile(r"\\(.)|(%)|(_)|([^\\%_]+|\\)", re.DOTALL)
_REPEAT = re.compile(r"[*+{]")  # escaped ones are counted too: the bound is not less safe for it
_EXPLOSIVE = re.compile(r"\)[*+?{]|\(\?(?!:)|\\[1-9]")  # a repeated group, a look-around, a reference back


class PatternRefused(ValueError):
    """A pattern that is not run. The message is for the agent."""


class _Segment:
    """What stands between two % of a pattern: text of a fixed width."""

    def __init__(self, expression: str, width: int) -> None:
        self.pattern = re.compile(expression, re.DOTALL)
        self.width = width


def like(pattern: str, text: str) -> bool:
    r"""Whether a text is like a pattern: % is anything, _ one character, \ takes the next as it is.

    >>> like("jos_%", "José María")
    True
    """
    first, *rest = _segments(pattern)
    text = fold(text)
    if first.pattern.match(text) is None:
        return False
    if not rest:
        return first.width == len(text)
    at = first.width
    for segment in rest[:-1]:
        found = segment.pattern.search(text, at)
        if found is None:
            return False
        at = found.end()
    start = len(text) - rest[-1].width
    return start >= at and rest[-1].pattern.match(text, start) is not None


def regexp(pattern: str, text: str) -> bool:
    """Whether a regular expression is found in a text. Raises `PatternRefused` for one that may take very long."""
    return _expression(pattern).search(text[:_LONGEST_TEXT]) is not None


@lru_cache(maxsize=1024)
def _segments(pattern: str) -> tuple[_Segment, ...]:
    if len(pattern) > _LONGEST_PATTERN:
        raise PatternRefused(f"a LIKE pattern may have {_LONGEST_PATTERN} characters, this one has {len(pattern)}")
    segments: list[_Segment] = []
    expression, width = "", 0
    for part in _LIKE_PART.finditer(pattern):
        escaped, anything, one, plain = part.groups()
        if anything:
            segments.append(_Segment(expression, width))
            expression, width = "", 0
        elif one:
            expression, width = expression + ".", width + 1
        else:
            folded = fold(plain or escaped)
            expression, width = expression + re.escape(folded), width + len(folded)
    return (*segments, _Segment(expression, width))


@lru_cache(maxsize=1024)
def _expression(pattern: str) -> re.Pattern[str]:
    if len(pattern) > _LONGEST_PATTERN or _EXPLOSIVE.search(pattern) or len(_REPEAT.findall(pattern)) > _MOST_REPEATS:
        raise PatternRefused("this regular expression is too complex for this server")
    try:
        return re.compile(pattern, re.IGNORECASE | re.DOTALL)
    except (re.error, OverflowError, RecursionError) as error:
        raise PatternRefused(f"not a regular expression: {error}") from None
