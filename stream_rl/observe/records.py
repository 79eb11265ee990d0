"""Reading fields of records that may lack them: what was not measured is None, never zero and never an error. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any


def number(record: Mapping[str, Any], *path: str) -> float | None:
    """The finite number at `path`, or None.

    >>> number({"lag": {"max": 2}}, "lag", "max"), number({"lag": None}, "lag", "max")
    (2.0, None)
    """
    value: Any = record
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def table(record: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """The mapping at `path`, or an empty one."""
    value: Any = record
    for key in path:
        if not isinstance(value, Mapping):
            return {}
        value = value.get(key)
    return value if isinstance(value, Mapping) else {}


def numbers(record: Mapping[str, Any], *path: str) -> dict[str, float]:
    """The numbers of the mapping at `path`; entries that are none are left out."""
    values = table(record, *path)
    return {key: value for key in values if (value := number(values, key)) is not None}


def sum_numbers(tables: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Key by key, in order of first appearance."""
    total: dict[str, float] = {}
    for values in tables:
        for key, value in values.items():
            total[key] = total.get(key, 0.0) + value
    return total


def shares(seconds: Mapping[str, float]) -> dict[str, float]:
    """Each value's part of the sum; empty for a sum of zero."""
    total = sum(seconds.values())
    return {key: value / total for key, value in seconds.items()} if total > 0 else {}
