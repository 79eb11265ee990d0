"""A private MariaDB server for one process, from the programs found on PATH."""

from __future__ import annotations

import shutil
import subprocess
import sys

from envs.dbbench.dsn import Server
from stream_rl.errors import EnvironmentFailed

_SERVERS = ("mariadbd", "mysqld")
_INSTALLERS = ("mariadb-install-db", "mysql_install_db")
_SYSTEM_PATHS = "/usr/sbin:/usr/local/sbin"  # where distributions put servers, often not on a user's PATH
_GRACE_S = 10.0


def programs() -> tuple[str, str] | None:
    """Paths of the installer and the server; None where MariaDB is not installed."""
    found = [_first(names) for names in (_INSTALLERS, _SERVERS)]
    return (found[0], found[1]) if found[0] and found[1] else None


class PrivateServer:
    """A running server. It ends with this process, or with `close`, and leaves nothing behind."""

    def __init__(self) -> None:
        """Start it, which takes one to a few seconds. Raises `EnvironmentFailed`."""
        paths = programs()
        if paths is None:
            raise EnvironmentFailed(
                f"dbbench: no {_SERVERS[0]} with {_INSTALLERS[0]} on PATH; install MariaDB's server, or name a server "
                "by option dsn_env, or use backend = 'sqlite'"
            )
        self._keeper = subprocess.Popen(
            [sys.executable, "-m", "envs.dbbench.keeper", *paths],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the pool to handle
        )
        assert self._keeper.stdout is not None
        kind, _, told = self._keeper.stdout.readline().decode(errors="replace").strip().partition(" ")
        if kind != "ready":
            self.close()
            raise EnvironmentFailed(f"dbbench: the private MariaDB server did not start: {told or 'its keeper died'}")
        self.server = Server(socket=told)

    @property
    def alive(self) -> bool:
        """Whether the server runs."""
        return self._keeper.poll() is None

    def close(self) -> None:
        """End it and remove its files."""
        for stream in (self._keeper.stdin, self._keeper.stdout):
            if stream is not None:
                stream.close()
        try:
            self._keeper.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._keeper.kill()
            self._keeper.wait()


def _first(names: tuple[str, ...]) -> str | None:
    for path in (None, _SYSTEM_PATHS):
        for name in names:
            if (found := shutil.which(name, path=path)) is not None:
                return found
    return None
