"""Answers by key in an SQLite file that several processes may share."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

_FORMAT = 1  # of the file; one of another format is refused
_LOCKED_S = 1.0  # the longest a call waits for another process's write
_RETRY_S = 0.02


class AnswerStore:
    """Blocking calls, one thread at a time. Every call raises `sqlite3.Error` when the file cannot be used.

    Bounded: past `max_rows` answers, the oldest go. A write is one short transaction, so processes that share the file
    hardly ever meet.
    """

    def __init__(self, path: Path, *, max_rows: int) -> None:
        """Open or create."""
        self._max_rows = max_rows
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=_LOCKED_S)
        try:
            self._prepare()
        except sqlite3.Error:
            self._db.close()
            raise

    def get(self, key: bytes) -> bytes | None:
        """The answer kept under `key`."""
        row = self._db.execute("SELECT record FROM answers WHERE key = ?", (key,)).fetchone()
        return None if row is None else bytes(row[0])

    def put(self, key: bytes, record: bytes) -> None:
        """Keep an answer; one that is there already is replaced and keeps its age."""
        with self._writing():
            self._db.execute(
                "INSERT INTO answers (key, record) VALUES (?, ?)"
                " ON CONFLICT (key) DO UPDATE SET record = excluded.record",
                (key, record),
            )
            # Ids grow by one with each new answer, so this leaves the `max_rows` newest.
            self._db.execute(
                "DELETE FROM answers WHERE id <= (SELECT MAX(id) FROM answers) - ?",
                (self._max_rows,),
            )

    def __len__(self) -> int:
        (count,) = self._db.execute("SELECT COUNT(*) FROM answers").fetchone()
        return int(count)

    def close(self) -> None:
        """Release the file."""
        self._db.close()

    def _prepare(self) -> None:
        self._write_ahead()
        self._db.execute("PRAGMA synchronous=NORMAL")
        with self._writing():
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            tables = [name for (name,) in self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            if (version, tables) == (_FORMAT, ["answers"]):
                return
            if tables or version:
                raise sqlite3.DatabaseError(f"it holds something else: format {version}, tables {', '.join(tables)}")
            self._db.execute(
                "CREATE TABLE answers (id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, record BLOB NOT NULL)"
            )
            self._db.execute(f"PRAGMA user_version={_FORMAT}")

    def _write_ahead(self) -> None:
        """Turn the write-ahead log on. SQLite does not wait for a lock here, so two that begin at once may collide."""
        deadline = time.monotonic() + _LOCKED_S
        while True:
            try:
                self._db.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
            time.sleep(_RETRY_S)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")
