"""The state of tables as one string, to compare with what upstream recorded.

AgentBench: a row's hash is the first 5 hex digits of MD5 over its columns joined by "," (NULL left out, as CONCAT_WS
does); a table's hash is MD5 over the sorted row hashes joined by ","; several tables are their sorted hashes joined
by "_".
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

ROW_DIGITS = 5


def row_hash(values: Sequence[str | None]) -> str:
    """Hash of one row.

    >>> row_hash(["1", None, "x"])
    '17619'
    """
    return _md5(",".join(value for value in values if value is not None))[:ROW_DIGITS]


def table_hash(row_hashes: Iterable[str]) -> str:
    """Hash of one table, from those of its rows in any order."""
    return _md5(",".join(sorted(row_hashes)))


def tables_hash(table_hashes: Iterable[str]) -> str:
    """Hash of all tables of a task."""
    return "_".join(sorted(table_hashes))


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
