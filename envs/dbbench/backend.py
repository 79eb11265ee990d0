"""Where the tables of an episode live, as the world sees it, and how results are shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from envs.dbbench.fingerprint import table_hash, tables_hash
from envs.dbbench.records import Table

SHOWN_CHARACTERS = 800
CUT = "[TRUNCATED]"


class StatementFailed(Exception):
    """The database refused a statement, or it took too long. The message is for the agent."""


class Database(Protocol):
    """The tables of one episode. No other episode sees them."""

    def execute(self, sql: str) -> str:
        """Run one statement of the agent; its rows as text, see `show`.

        Raises `Refused` for text that is not run, `StatementFailed` for what the database says no to, and
        `EnvironmentFailed` when the database is gone.
        """
        ...

    def row_hashes(self, table: str, columns: Sequence[str]) -> list[str]:
        """`fingerprint.row_hash` of every row. Raises `StatementFailed` if the table is no longer like that."""
        ...

    def close(self) -> None:
        """Drop everything the episode made. May be called twice."""
        ...


class Backend(Protocol):
    """Makes databases."""

    def open(self, tables: Sequence[Table]) -> Database:
        """A new database that holds these tables. Raises `EnvironmentFailed`."""
        ...


def show(rows: Iterable[Sequence[Any]]) -> str:
    """Rows as a Python list of tuples, cut at 800 characters. Takes no more rows than it shows.

    >>> show([("a", 1), (None, 2.5)])
    "[('a', 1), (None, 2.5)]"
    """
    parts: list[str] = []
    length = 0
    for row in rows:
        parts.append(repr(tuple(row)))
        length += len(parts[-1]) + 2
        if length > SHOWN_CHARACTERS + 2:
            break
    return cut("[" + ", ".join(parts) + "]")


def cut(text: str) -> str:
    """At most 800 characters, and a mark where something is missing."""
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + CUT


def state(database: Database, tables: Sequence[Table]) -> str:
    """Hash of the tables as they are now. Raises `StatementFailed` if one is gone or has other columns."""
    return tables_hash(table_hash(database.row_hashes(table.name, table.columns)) for table in tables)


def quoted(name: str) -> str:
    """A name as an identifier, for MySQL and for SQLite."""
    return "`" + name.replace("`", "``") + "`"
