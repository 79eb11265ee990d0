"""Episodes in SQLite, each in a database of its own in memory, with MySQL's language and order of text."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from typing import Any

from envs.dbbench import collation, mysql_functions
from envs.dbbench.backend import StatementFailed, quoted, show
from envs.dbbench.catalogue import describe
from envs.dbbench.fingerprint import row_hash
from envs.dbbench.mysql_functions import text_of
from envs.dbbench.records import Table
from envs.dbbench.statements import one_statement

_LONGEST_VALUE = 20_000  # bytes of a value or a row; SQLite cannot be interrupted inside a function
_MOST_PAGES = 16_384  # of 4 KiB: 64 MiB for one episode
_CHECK_EVERY = 2_000  # instructions of SQLite's machine between two looks at the clock

_ALLOWED = frozenset(
    {
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_INSERT,
        sqlite3.SQLITE_UPDATE,
        sqlite3.SQLITE_DELETE,
        sqlite3.SQLITE_RECURSIVE,
        sqlite3.SQLITE_TRANSACTION,
        sqlite3.SQLITE_SAVEPOINT,
        sqlite3.SQLITE_CREATE_TABLE,
        sqlite3.SQLITE_CREATE_TEMP_TABLE,
        sqlite3.SQLITE_CREATE_VIEW,
        sqlite3.SQLITE_CREATE_TEMP_VIEW,
        sqlite3.SQLITE_CREATE_INDEX,
        sqlite3.SQLITE_CREATE_TEMP_INDEX,
        sqlite3.SQLITE_DROP_TABLE,
        sqlite3.SQLITE_DROP_TEMP_TABLE,
        sqlite3.SQLITE_DROP_VIEW,
        sqlite3.SQLITE_DROP_TEMP_VIEW,
        sqlite3.SQLITE_DROP_INDEX,
        sqlite3.SQLITE_DROP_TEMP_INDEX,
        sqlite3.SQLITE_ALTER_TABLE,
        sqlite3.SQLITE_REINDEX,
    }
)
# Not MySQL's, and either dangerous or without a bound on the time of one call.
_FORBIDDEN_FUNCTIONS = frozenset({"load_extension", "glob", "readfile", "writefile", "edit", "fts3_tokenizer"})


class SQLiteBackend:
    """Implements `envs.dbbench.backend.Backend`. Any number of episodes at once."""

    def __init__(self, *, statement_limit_s: float) -> None:
        self._limit_s = statement_limit_s

    def open(self, tables: Sequence[Table]) -> SQLiteDatabase:
        """A new database that holds these tables."""
        return SQLiteDatabase(tables, self._limit_s)


class SQLiteDatabase:
    """Implements `envs.dbbench.backend.Database`."""

    def __init__(self, tables: Sequence[Table], limit_s: float) -> None:
        self._limit_s = limit_s
        self._deadline = 0.0
        self._connection = connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        connection.create_collation(collation.NAME, collation.compare)
        mysql_functions.register(connection)
        connection.execute(f"PRAGMA max_page_count = {_MOST_PAGES}")
        longest = _LONGEST_VALUE
        for table in tables:
            columns = ", ".join(f"{quoted(column)} TEXT COLLATE {collation.NAME}" for column in table.columns)
            connection.execute(f"CREATE TABLE IF NOT EXISTS {quoted(table.name)} ({columns})")
            marks = ", ".join("?" * len(table.columns))
            connection.executemany(f"INSERT INTO {quoted(table.name)} VALUES ({marks})", table.rows)
            longest = max([longest, *(4 * sum(map(len, row)) for row in table.rows)])
        # From here on, what runs may come from the agent.
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, longest)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.set_authorizer(_authorise)
        connection.set_progress_handler(self._overdue, _CHECK_EVERY)

    def execute(self, sql: str) -> str:
        """Run one statement. Raises `Refused` and `StatementFailed`."""
        from envs.dbbench.dialect import to_sqlite  # takes a quarter of a second to import

        statement = one_statement(sql)
        if statement.verb == "use":
            raise StatementFailed("there is only one database here")
        self._deadline = time.monotonic() + self._limit_s
        try:
            rows = describe(statement, self._query)
            if rows is not None:
                return show(rows)
            cursor = self._connection.execute(to_sqlite(statement))
            try:
                return show(cursor)
            finally:
                cursor.close()
                if self._connection.in_transaction:
                    self._connection.commit()
        except (sqlite3.Error, sqlite3.Warning, OverflowError, UnicodeError) as error:
            raise StatementFailed(self._told(error)) from None

    def row_hashes(self, table: str, columns: Sequence[str]) -> list[str]:
        """`row_hash` of every row. Raises `StatementFailed` if the table is no longer like that."""
        self._deadline = time.monotonic() + self._limit_s
        try:
            rows = self._connection.execute(f"SELECT {', '.join(map(quoted, columns))} FROM {quoted(table)}")
            return [row_hash([None if value is None else text_of(value) for value in row]) for row in rows]
        except sqlite3.Error as error:
            raise StatementFailed(self._told(error)) from None

    def close(self) -> None:
        """Forget everything."""
        self._connection.close()

    def _query(self, sql: str) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
        cursor = self._connection.execute(sql)
        return [column[0] for column in cursor.description], cursor.fetchall()

    def _overdue(self) -> bool:
        return time.monotonic() > self._deadline

    def _told(self, error: Exception) -> str:
        if "interrupted" in str(error):
            return f"the statement was stopped: it took longer than {self._limit_s:g} s"
        if "user-defined function" in str(error):
            return "a function was given something that this server does not compute, such as a pattern too complex"
        return str(error)


def _authorise(action: int, first: str | None, second: str | None, *_: Any) -> int:
    if action == sqlite3.SQLITE_FUNCTION:
        return sqlite3.SQLITE_DENY if (second or "").lower() in _FORBIDDEN_FUNCTIONS else sqlite3.SQLITE_OK
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY
