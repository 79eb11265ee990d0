"""The backend that options name, one a process: all its episodes share a server."""

from __future__ import annotations

import atexit
import os
from typing import TYPE_CHECKING, Literal

from envs.dbbench.backend import Backend
from envs.dbbench.dsn import Server, parse_dsn
from envs.dbbench.mariadb import PrivateServer
from stream_rl.errors import ConfigError

if TYPE_CHECKING:
    from envs.dbbench.mysql_server import MySQLServer

BackendName = Literal["sqlite", "mysql"]

_PATH = "environments.options"


def backend_for(name: BackendName, *, dsn_env: str = "", statement_limit_s: float = 2.0) -> Backend:
    """SQLite, or a MySQL-protocol server: the one at the address in the environment variable `dsn_env`, or a private
    MariaDB of this process if that is empty.

    Raises `ConfigError` for what cannot be used at all, `EnvironmentFailed` for a server that does not answer.
    """
    key = (name, dsn_env, statement_limit_s)
    backend = _open.get(key)
    if backend is None or not backend.alive:
        if backend is not None:
            backend.close()
        backend = _open[key] = _Shared(*key)
    return backend.backend


class _Shared:
    """A backend, and the server that was started for it."""

    def __init__(self, name: BackendName, dsn_env: str, limit_s: float) -> None:
        self._private: PrivateServer | None = None
        self._server: MySQLServer | None = None
        self.backend: Backend
        try:  # each backend needs a package that the other does not
            if name == "sqlite":
                import envs.dbbench.dialect  # noqa: F401  (the first statement shall not pay for it)
                from envs.dbbench.sqlite_backend import SQLiteBackend

                self.backend = SQLiteBackend(statement_limit_s=limit_s)
                return
            from envs.dbbench.mysql_server import MySQLServer
        except ModuleNotFoundError as error:
            raise ConfigError(
                _PATH,
                f"dbbench with backend {name!r} needs the package {error.name}: pip install 'stream-rl[dbbench]'.",
            ) from None
        if dsn_env:
            server = _server(dsn_env)
        else:
            self._private = PrivateServer()
            server = self._private.server
        try:
            self.backend = self._server = MySQLServer(server, statement_limit_s=limit_s)
        except BaseException:
            self.close()
            raise

    @property
    def alive(self) -> bool:
        return (self._private is None or self._private.alive) and (self._server is None or self._server.alive)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._private is not None:
            self._private.close()


_open: dict[tuple[BackendName, str, float], _Shared] = {}


@atexit.register
def _close_all() -> None:
    while _open:
        _open.popitem()[1].close()


def _server(dsn_env: str) -> Server:
    dsn = os.environ.get(dsn_env)
    if not dsn:
        raise ConfigError(f"{_PATH}.dsn_env", f"the environment variable {dsn_env} is not set; it holds mysql://...")
    try:
        return parse_dsn(dsn)
    except ValueError as error:
        raise ConfigError(f"{_PATH}.dsn_env", f"the address in {dsn_env} cannot be used: {error}.") from None
