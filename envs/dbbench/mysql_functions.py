"""MySQL functions that SQLite lacks, or has with another meaning. NULL in is NULL out, as there."""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Callable
from datetime import datetime
from functools import wraps
from typing import Any

from envs.dbbench.collation import fold
from envs.dbbench.patterns import like, regexp

_DATE = re.compile(r"\s*(\d{4})-(\d{1,2})-(\d{1,2})")
_NUMBER = re.compile(r"\s*[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_LONGEST = 20_000  # characters a function may make


def register(connection: sqlite3.Connection) -> None:
    """Add the functions to a connection."""
    for name, arguments, function in _FUNCTIONS:
        connection.create_function(name, arguments, function, deterministic=True)


def text_of(value: Any) -> str:
    """A value as MySQL turns it into text."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def number_of(value: Any) -> float:
    """A value as MySQL turns it into a number: of text, the number it begins with.

    >>> number_of("12,345")
    12.0
    """
    if isinstance(value, int | float):
        return float(value)
    found = _NUMBER.match(text_of(value))
    number = float(found.group()) if found else 0.0
    return number if math.isfinite(number) else 0.0


def _strict(function: Callable[..., Any]) -> Callable[..., Any]:
    """NULL for NULL, which most functions do."""

    @wraps(function)
    def call(*values: Any) -> Any:
        return None if any(value is None for value in values) else function(*values)

    return call


def _whole(value: Any) -> int:
    return max(-_LONGEST, min(_LONGEST, round(number_of(value))))


def _concat(*values: Any) -> str:
    return "".join(map(text_of, values))


def _concat_ws(separator: Any, *values: Any) -> str | None:
    if separator is None:
        return None
    return text_of(separator).join(text_of(value) for value in values if value is not None)


def _left(value: Any, count: Any) -> str:
    return text_of(value)[: max(0, _whole(count))]


def _right(value: Any, count: Any) -> str:
    text = text_of(value)
    return text[max(0, len(text) - max(0, _whole(count))) :]


def _instr(text: Any, part: Any) -> int:
    return fold(text_of(text)).find(fold(text_of(part))) + 1


def _substring_index(value: Any, delimiter: Any, count: Any) -> str:
    """What is before the n-th delimiter, or after the n-th last one."""
    text, mark, n = text_of(value), text_of(delimiter), _whole(count)
    if not mark or not n:
        return ""
    parts = text.split(mark)
    return mark.join(parts[:n] if n > 0 else parts[n:])


def _padding(value: Any, length: Any, pad: Any) -> tuple[str, str] | None:
    """The text cut to the length, and what it lacks; None where MySQL gives NULL."""
    text, fill, width = text_of(value), text_of(pad), _whole(length)
    missing = max(0, width - len(text))
    if width < 0 or (missing and not fill):
        return None
    return text[:width], (fill * (missing // len(fill) + 1))[:missing] if missing else ""


def _lpad(value: Any, length: Any, pad: Any) -> str | None:
    made = _padding(value, length, pad)
    return made and made[1] + made[0]


def _rpad(value: Any, length: Any, pad: Any) -> str | None:
    made = _padding(value, length, pad)
    return made and made[0] + made[1]


def _repeat(value: Any, count: Any) -> str | None:
    text, times = text_of(value), max(0, _whole(count))
    return None if len(text) * times > _LONGEST else text * times


def _field(wanted: Any, *values: Any) -> int:
    if wanted is None:
        return 0
    key = fold(text_of(wanted))
    return next((i for i, v in enumerate(values, 1) if v is not None and fold(text_of(v)) == key), 0)


def _find_in_set(wanted: Any, members: Any) -> int:
    return _field(wanted, *text_of(members).split(","))


def _strcmp(a: Any, b: Any) -> int:
    x, y = fold(text_of(a)), fold(text_of(b))
    return (x > y) - (x < y)


def _format(value: Any, digits: Any) -> str:
    return f"{number_of(value):,.{max(0, min(30, _whole(digits)))}f}"


def _truncate(value: Any, digits: Any) -> float:
    scale = 10.0 ** max(-15, min(15, _whole(digits)))
    return math.trunc(number_of(value) * scale) / scale


def _remainder(value: Any, divisor: Any) -> float | int | None:
    if isinstance(value, int) and isinstance(divisor, int):
        return int(math.fmod(value, divisor)) if divisor else None
    by = number_of(divisor)
    return math.fmod(number_of(value), by) if by else None


def _str_to_date(value: Any, pattern: Any) -> str | None:
    """The date as ISO text. The pattern comes in Python's spelling, the dialect translates it."""
    try:
        moment = datetime.strptime(text_of(value).strip(), text_of(pattern))
    except ValueError:
        return None
    dated, timed = any(c in pattern for c in ("%d", "%m", "%Y", "%b", "%B", "%y")), "%H" in pattern or "%I" in pattern
    if dated and timed:
        return moment.strftime("%Y-%m-%d %H:%M:%S")
    return moment.strftime("%Y-%m-%d" if dated else "%H:%M:%S")


def _date_part(part: int) -> Callable[[Any], int | None]:
    def take(value: Any) -> int | None:
        found = _DATE.match(text_of(value))
        return int(found.group(part)) if found else None

    return take


_FUNCTIONS: tuple[tuple[str, int, Callable[..., Any]], ...] = (
    ("like", 2, _strict(lambda pattern, text: like(text_of(pattern), text_of(text)))),
    ("like", 3, _strict(lambda pattern, text, _: like(text_of(pattern), text_of(text)))),
    ("regexp", 2, _strict(lambda pattern, text: regexp(text_of(pattern), text_of(text)))),
    ("lower", 1, _strict(lambda value: text_of(value).lower())),
    ("upper", 1, _strict(lambda value: text_of(value).upper())),
    ("as_number", 1, _strict(lambda value: value if isinstance(value, int) else number_of(value))),
    ("remainder", 2, _strict(_remainder)),
    ("stored_number", 1, _strict(text_of)),
    ("concat", -1, _strict(_concat)),
    ("concat_ws", -1, _concat_ws),
    ("left_part", 2, _strict(_left)),
    ("right_part", 2, _strict(_right)),
    ("instr", 2, _strict(_instr)),
    ("substring_index", 3, _strict(_substring_index)),
    ("lpad", 3, _strict(_lpad)),
    ("rpad", 3, _strict(_rpad)),
    ("repeat", 2, _strict(_repeat)),
    ("reverse", 1, _strict(lambda value: text_of(value)[::-1])),
    ("field", -1, _field),
    ("find_in_set", 2, _strict(_find_in_set)),
    ("strcmp", 2, _strict(_strcmp)),
    ("number_to_str", 2, _strict(_format)),
    ("truncate", 2, _strict(_truncate)),
    ("str_to_date", 2, _strict(_str_to_date)),
    ("year", 1, _strict(_date_part(1))),
    ("month", 1, _strict(_date_part(2))),
    ("day", 1, _strict(_date_part(3))),
)
