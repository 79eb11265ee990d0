"""SHOW and DESCRIBE on SQLite, answered as MySQL would for DBBench's tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from envs.dbbench.backend import StatementFailed, quoted
from envs.dbbench.statements import Statement

Query = Callable[[str], tuple[Sequence[str], Sequence[Sequence[Any]]]]  # SQL -> (column names, rows)

_NAME = r"(`(?:[^`]|``)+`|[^\s`]+)"
_SHOW_TABLES = re.compile(r"show\s+(?:full\s+)?tables\s*\Z", re.IGNORECASE)
_SHOW_CREATE = re.compile(rf"show\s+create\s+table\s+{_NAME}\s*\Z", re.IGNORECASE)
_COLUMNS = re.compile(
    rf"(?:show\s+(?:columns|fields)\s+(?:from|in)|desc(?:ribe)?|explain)\s+{_NAME}\s*\Z", re.IGNORECASE
)
_TABLES = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite%' ORDER BY name"


def describe(statement: Statement, query: Query) -> list[tuple[Any, ...]] | None:
    """Rows of the answer; None for a statement that is none of these. Raises `StatementFailed` for an unknown form."""
    text = statement.text
    if _SHOW_TABLES.match(text):
        return [tuple(row) for row in query(_TABLES)[1]]
    if found := _SHOW_CREATE.match(text):
        name = _plain(found.group(1))
        columns = ",\n".join(f"  {quoted(column)} text DEFAULT NULL" for column in _columns(name, query))
        return [(name, f"CREATE TABLE {quoted(name)} (\n{columns}\n)")]
    if found := _COLUMNS.match(text):
        return [(column, "text", "YES", "", None, "") for column in _columns(_plain(found.group(1)), query)]
    if statement.verb in ("show", "desc", "describe"):
        raise StatementFailed("only SHOW TABLES, SHOW COLUMNS, SHOW CREATE TABLE and DESCRIBE are available here")
    return None


def _columns(table: str, query: Query) -> Sequence[str]:
    return query(f"SELECT * FROM {quoted(table)} LIMIT 0")[0]


def _plain(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name
