"""Servers that the user runs, by address. A process takes some of them for its whole life."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from envs.appworld.client import Client, ServerTrouble
from stream_rl.errors import EnvironmentFailed, EnvironmentLost

log = logging.getLogger(__name__)

_GREETING_S = 1.0  # a server that takes longer is busy with somebody's endless code, or gone
_START_S = 60.0  # the first greeting may find it still starting


class GivenFleet:
    """Implements `envs.appworld.fleet.Fleet`.

    Each address is locked for this process, among all processes of this user on this machine: two episodes on one
    server would end each other's world.
    """

    def __init__(self, urls: Sequence[str], servers: int) -> None:
        """Raises `ValueError` for what is no address."""
        self._clients = [Client(url) for url in urls]
        self._servers = servers
        self._locks: list[int] = []
        self._free: deque[Client] = deque()  # that was unused longest first
        self._taken = 0

    def prepare(self) -> int:
        """Take up to `servers` addresses that no other process has. Raises `EnvironmentFailed`."""
        if self._taken:
            return self._taken
        for client in self._clients:
            if self._taken == self._servers:
                break
            lock = _lock(client.address)
            if lock is None:
                continue
            self._locks.append(lock)
            try:
                client.greet(_START_S)
            except ServerTrouble as error:
                self.close()
                raise EnvironmentFailed(f"appworld: no server to work with: {error}") from None
            self._free.append(client)
            self._taken += 1
        if not self._taken:
            raise EnvironmentFailed(
                f"appworld: other processes hold all {len(self._clients)} addresses of option urls; name more, or give "
                "each worker its share by option servers"
            )
        return self._taken

    def lease(self, timeout_s: float) -> GivenServer:
        """A server that answers. Raises `EnvironmentFailed` when all are out, `EnvironmentLost` when none answers."""
        self.prepare()
        if not self._free:
            raise EnvironmentFailed(f"appworld: all {self._taken} servers of this process hold an episode")
        until = time.monotonic() + timeout_s
        troubles: list[str] = []
        for client in list(self._free):
            try:
                client.greet(min(_GREETING_S, max(until - time.monotonic(), 0.0)))
            except ServerTrouble as error:
                troubles.append(str(error))
                continue
            self._free.remove(client)
            return GivenServer(self, client)
        raise EnvironmentLost(f"appworld: no server is of use now: {'; '.join(troubles)}")

    def close(self) -> None:
        """Let other processes have them."""
        for lock in self._locks:
            os.close(lock)
        self._locks.clear()
        self._free.clear()
        self._taken = 0

    def returned(self, client: Client) -> None:
        """An episode is over there. Whether it can be used again is asked before the next one."""
        if self._taken:
            self._free.append(client)


class GivenServer:
    """Implements `envs.appworld.fleet.Lease`."""

    def __init__(self, fleet: GivenFleet, client: Client) -> None:
        self._fleet = fleet
        self._ended = False
        self.client = client
        self.experiment = f"stream-rl-{_digest(client.address)}"

    def end(self) -> str:
        """Leave it alone; its next episode makes a new world."""
        if not self._ended:
            self._ended = True
            self._fleet.returned(self.client)
        return ""


def _lock(address: str) -> int | None:
    """An open file that no other process can lock until it is closed; None if another has."""
    folder = Path(tempfile.gettempdir(), f"stream-rl-appworld-locks-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    lock = os.open(folder / _digest(address), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def _digest(address: str) -> str:
    return hashlib.sha256(address.encode()).hexdigest()[:16]
