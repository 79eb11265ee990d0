"""The fleet that options name, one a process: all its episodes share it."""

from __future__ import annotations

import atexit
from pathlib import Path

import msgspec

from envs.appworld.fleet import Fleet
from envs.appworld.given import GivenFleet
from envs.appworld.private import PrivateFleet


class FleetKey(msgspec.Struct, frozen=True, kw_only=True):
    """What tells one fleet from another."""

    urls: tuple[str, ...]  # the user's servers; empty: private ones
    servers: int  # most of them that one process uses
    python: Path | None  # for private ones: interpreter that has AppWorld
    data: Path  # folder with `datasets` and `tasks`
    task: str  # id of a task to warm up with
    memory_mib: int  # data a private server may hold; 0: no limit


def fleet_for(key: FleetKey) -> Fleet:
    """Made when it is first asked for; starts nothing before its `prepare` or `lease`."""
    fleet = _open.get(key)
    if fleet is None:
        fleet = _open[key] = _made(key)
    return fleet


def _made(key: FleetKey) -> Fleet:
    if key.urls:
        return GivenFleet(key.urls, key.servers)
    assert key.python is not None
    return PrivateFleet(python=key.python, data=key.data, task=key.task, servers=key.servers, memory_mib=key.memory_mib)


_open: dict[FleetKey, Fleet] = {}


@atexit.register
def close_all() -> None:
    """End all servers of this process. The next episode starts new ones."""
    while _open:
        _open.popitem()[1].close()
