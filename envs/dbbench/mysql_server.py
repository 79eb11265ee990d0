"""A MySQL or MariaDB server as episodes use it: each gets a database and a user that may touch nothing else."""

from __future__ import annotations

import itertools
import logging
import os
import secrets
import threading
from collections.abc import Sequence
from typing import Any

import pymysql
from pymysql.constants import CLIENT

from envs.dbbench.backend import quoted
from envs.dbbench.dsn import Server
from envs.dbbench.mysql_database import MySQLDatabase
from envs.dbbench.records import Table
from stream_rl.errors import EnvironmentFailed, EnvironmentLost

log = logging.getLogger(__name__)

SQL_MODE = "ONLY_FULL_GROUP_BY,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"
_PREFIX = "srldb"  # of databases, users and the lock that says their maker lives
# By preference: MySQL's own default, MariaDB's version of it, what is older than both.
_COLLATIONS = ("utf8mb4_0900_ai_ci", "utf8mb4_uca1400_nopad_ai_ci", "utf8mb4_unicode_520_ci", "utf8mb4_unicode_ci")
_RIGHTS = (
    "SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, DROP, INDEX, REFERENCES, CREATE TEMPORARY TABLES, "
    "CREATE VIEW, SHOW VIEW"
)
_UNKNOWN_COLLATION = 1273  # of the server's numbers for errors
_NO_SUCH_THREAD = 1094
_CONNECT_S = 10.0
_ADMIN_S = 30.0  # a statement of ours that takes longer means that the server is gone
_IDLE_S = 7 * 86400  # seconds a connection may say nothing; servers end it after 8 hours by themselves


class MySQLServer:
    """Implements `envs.dbbench.backend.Backend`. One connection makes and drops what episodes need."""

    def __init__(self, server: Server, *, statement_limit_s: float) -> None:
        """Connect, and drop what processes that died have left on the server. Raises `EnvironmentFailed`."""
        self._server = server
        self._limit_s = statement_limit_s
        self._lock = threading.Lock()
        self._name = f"{_PREFIX}{secrets.token_hex(4)}"
        self._numbers = itertools.count()
        self._user_host = "localhost" if server.socket else "%"
        self._admin = self._connect(server.user, server.password, timeout_s=_ADMIN_S)
        try:
            version = str(self._rows("SELECT VERSION()")[0][0])
            self._mariadb = "mariadb" in version.lower()
            self._collation = self._best_collation()
            self._rows(f"SET SESSION wait_timeout = {_IDLE_S}")
            self._rows(f"SELECT GET_LOCK('{self._name}', 0)")
            self._sweep()
        except pymysql.MySQLError as error:
            self.close()
            raise EnvironmentFailed(f"dbbench: {server} cannot be used: {_told(error)}") from None

    def open(self, tables: Sequence[Table]) -> MySQLDatabase:
        """A new database that holds these tables, and its user. Raises `EnvironmentFailed`."""
        name, password = f"{self._name}x{next(self._numbers)}", secrets.token_hex(16)
        user = f"'{name}'@'{self._user_host}'"
        limits = "MAX_USER_CONNECTIONS 4" + (f" MAX_STATEMENT_TIME {self._limit_s}" if self._mariadb else "")
        try:
            with self._lock:
                self._rows(f"CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE {self._collation}")
                self._rows(f"CREATE USER {user} IDENTIFIED BY '{password}' WITH {limits}")
                self._rows(f"GRANT {_RIGHTS} ON {name}.* TO {user}")
                for table in tables:
                    self._fill(name, table)
        except pymysql.MySQLError as error:
            raise EnvironmentFailed(f"dbbench: {self._server} made no database: {_told(error)}") from None
        return MySQLDatabase(self, name, password, self._limit_s)

    def connect_user(self, name: str, password: str, timeout_s: float) -> Any:
        """A connection of an episode to its own database. Raises `EnvironmentFailed`."""
        connection = self._connect(name, password, timeout_s=timeout_s, database=name)
        if not self._mariadb:  # MySQL limits SELECT only; the rest is ended from outside
            with connection.cursor() as cursor:
                cursor.execute(f"SET SESSION max_execution_time = {max(1, round(1000 * self._limit_s))}")
        return connection

    def kill(self, thread: int) -> None:
        """End a connection and what it runs. One that has ended already is no error."""
        try:
            with self._lock:
                self._rows(f"KILL {thread}")
        except pymysql.err.OperationalError as error:
            if error.args[0] != _NO_SUCH_THREAD:
                raise EnvironmentLost(f"dbbench: {self._server} is gone: {_told(error)}") from None

    def drop(self, name: str) -> None:
        """Remove an episode's database and user. What a server that is gone still has, the next process drops."""
        try:
            with self._lock:
                self._drop(name, self._user_host)
        except pymysql.MySQLError as error:
            log.warning("dbbench: %s was not dropped from %s: %s", name, self._server, _told(error))

    @property
    def alive(self) -> bool:
        """Whether the connection that makes episodes is up, as far as is known."""
        return bool(self._admin.open)

    def close(self) -> None:
        """Hang up. Episodes must have been closed."""
        if self._admin.open:
            self._admin.close()

    def _fill(self, database: str, table: Table) -> None:
        columns = ", ".join(f"{quoted(column)} TEXT" for column in table.columns)
        where = f"{database}.{quoted(table.name)}"
        self._rows(f"CREATE TABLE IF NOT EXISTS {where} ({columns})")
        if table.rows:
            values = ", ".join("(" + ", ".join(map(self._admin.escape, row)) + ")" for row in table.rows)
            self._rows(f"INSERT INTO {where} VALUES {values}")

    def _best_collation(self) -> str:
        for name in _COLLATIONS[:-1]:
            try:
                self._rows(f"SELECT _utf8mb4'a' COLLATE {name}")
            except pymysql.err.OperationalError as error:
                if error.args[0] != _UNKNOWN_COLLATION:
                    raise
            else:
                return name
        return _COLLATIONS[-1]

    def _sweep(self) -> None:
        """Databases and users whose maker no longer holds its lock are nobody's."""
        users = self._rows(f"SELECT user, host FROM mysql.user WHERE user LIKE '{_PREFIX}%'")
        hosts = {str(user): str(host) for user, host in users}
        for (database,) in self._rows(f"SHOW DATABASES LIKE '{_PREFIX}%'"):
            hosts.setdefault(str(database), self._user_host)
        for name, host in hosts.items():
            maker = name.partition("x")[0]
            if maker.isalnum() and self._rows(f"SELECT IS_USED_LOCK('{maker}')")[0][0] is None:
                self._drop(name, host)

    def _drop(self, name: str, host: str) -> None:
        self._rows(f"DROP DATABASE IF EXISTS {quoted(name)}")
        self._rows(f"DROP USER IF EXISTS '{name}'@'{host}'")

    def _rows(self, sql: str) -> Sequence[Sequence[Any]]:
        with self._admin.cursor() as cursor:
            cursor.execute(sql)
            rows: Sequence[Sequence[Any]] = cursor.fetchall()
            return rows

    def _connect(self, user: str, password: str, *, timeout_s: float, database: str | None = None) -> Any:
        server = self._server
        if server.socket and not os.path.exists(server.socket):  # pymysql would leave an open file behind
            raise EnvironmentLost(f"dbbench: no connection to {server}: there is no such socket")
        try:
            return pymysql.connect(
                user=user,
                password=password,
                database=database,
                host=None if server.socket else server.host,
                port=server.port,
                unix_socket=server.socket or None,
                ssl_disabled=not server.ssl,
                ssl_verify_cert=server.ssl or None,
                ssl_verify_identity=server.ssl or None,
                charset="utf8mb4",
                sql_mode=SQL_MODE,
                autocommit=True,
                local_infile=False,
                client_flag=CLIENT.FOUND_ROWS,
                connect_timeout=_CONNECT_S,
                read_timeout=timeout_s,
                write_timeout=timeout_s,
            )
        except pymysql.MySQLError as error:
            raise EnvironmentLost(f"dbbench: no connection to {server}: {_told(error)}") from None


def _told(error: Exception) -> str:
    return " ".join(str(part) for part in error.args)
