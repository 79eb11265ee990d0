"""One episode on a MySQL server: its own database through its own user, every statement bounded in time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

import pymysql
from pymysql.cursors import SSCursor

from envs.dbbench.backend import StatementFailed, quoted, show
from envs.dbbench.fingerprint import ROW_DIGITS
from envs.dbbench.statements import one_statement
from stream_rl.errors import EnvironmentLost

_GRACE_S = 0.25  # for the server to end a statement by itself; then the connection is ended from outside
_IN_TRANSACTION = 1  # SERVER_STATUS_IN_TRANS
_KILLED = 1317  # a statement that was interrupted
_STOPPED = frozenset({1969, 3024, _KILLED})  # MariaDB's and MySQL's numbers for one that took too long
_GONE = frozenset({0, 2006, 2013})  # pymysql's for a connection that is lost

T = TypeVar("T")


class Host(Protocol):
    """What an episode needs of its server."""

    def connect_user(self, name: str, password: str, timeout_s: float) -> Any:
        """A connection to the database of that name."""
        ...

    def kill(self, thread: int) -> None:
        """End a connection."""
        ...

    def drop(self, name: str) -> None:
        """Remove database and user."""
        ...


class MySQLDatabase:
    """Implements `envs.dbbench.backend.Database`."""

    def __init__(self, host: Host, name: str, password: str, limit_s: float) -> None:
        self._host = host
        self._name = name
        self._password = password
        self._limit_s = limit_s
        self._connection: Any = None
        self._closed = False

    def execute(self, sql: str) -> str:
        """Run one statement. Raises `Refused`, `StatementFailed`, `EnvironmentLost`."""
        return self._run(one_statement(sql).text, show)

    def row_hashes(self, table: str, columns: Sequence[str]) -> list[str]:
        """Row hashes, computed by the server with the rights of the episode's user and its time limit."""
        joined = ", ".join(map(quoted, columns))
        sql = f"SELECT SUBSTRING(MD5(CONCAT_WS(',', {joined})), 1, {ROW_DIGITS}) FROM {quoted(table)}"
        return self._run(sql, lambda rows: [str(row[0]) for row in rows])

    def close(self) -> None:
        """Hang up and drop database and user. May be called twice."""
        if not self._closed:
            self._closed = True
            self._hang_up()
            self._host.drop(self._name)

    def _run(self, sql: str, take: Callable[[Iterator[Sequence[Any]]], T]) -> T:
        """What `take` makes of a statement's rows. Rows it leaves pass by without being stored."""
        deadline = time.monotonic() + self._limit_s + _GRACE_S
        connection = self._connected()
        cursor = connection.cursor(SSCursor)
        try:
            cursor.execute(sql)
            rows = self._rows(cursor, connection, deadline) if cursor.description else iter(())
            taken = take(rows)
            deque(rows, maxlen=0)
            cursor.close()
            if connection.server_status & _IN_TRANSACTION:
                connection.commit()  # every statement of an agent stands for itself, as in upstream
            return taken
        except (pymysql.err.OperationalError, pymysql.err.InterfaceError) as error:
            code = error.args[0] if error.args else 0
            _abandon(cursor)
            if code in _STOPPED or time.monotonic() >= deadline - _GRACE_S:
                self._end(connection)
                raise StatementFailed(f"the statement was stopped: it took longer than {self._limit_s:g} s") from None
            if code in _GONE or not connection.open:
                self._hang_up()
                raise EnvironmentLost(f"dbbench: the database server is gone: {_told(error)}") from None
            raise StatementFailed(_told(error)) from None
        except pymysql.MySQLError as error:
            raise StatementFailed(_told(error)) from None

    def _rows(self, cursor: SSCursor, connection: Any, deadline: float) -> Iterator[Sequence[Any]]:
        """Rows as they come. Past the deadline the server ends the connection, and with it the rows."""
        killed = False
        for row in cursor.fetchall_unbuffered():
            if not killed and time.monotonic() > deadline:
                killed = True
                self._host.kill(connection.thread_id())
            yield row
        if killed:  # the last rows may have been on their way already
            raise pymysql.err.OperationalError(_KILLED, "the connection was ended")

    def _end(self, connection: Any) -> None:
        """Whatever the server still does for this connection, it must not do it at the cost of others."""
        thread = connection.thread_id()
        self._hang_up()
        self._host.kill(thread)

    def _connected(self) -> Any:
        if self._connection is None:
            self._connection = self._host.connect_user(self._name, self._password, self._limit_s + _GRACE_S)
        return self._connection

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and connection.open:
            connection.close()


def _abandon(cursor: SSCursor) -> None:
    """pymysql reads what is left of a result when its cursor is collected: not from a connection that is gone."""
    if cursor._result is not None:
        cursor._result.unbuffered_active = False


def _told(error: pymysql.MySQLError) -> str:
    return f"{error.args[0]}: {error.args[1]}" if len(error.args) > 1 else str(error)
