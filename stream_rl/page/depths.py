"""Rollout wait of this run and of its neighbours that differ from it in nothing but async depth."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from stream_rl.observe.rundir import RunDirectory, read_json_lines
from stream_rl.page.columns import Columns, DepthTime

# Keys that may differ between runs that are put on one axis: the axis itself, chance, length, and how one is watched.
_FREE = frozenset({"seed", "updates", "async_depth", "max_lag", "port", "stall_s", "eval", "alarms", "page"})


class DepthPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One run at one depth."""

    run: str  # its name
    depth: int  # async depth in force
    wait_share: float  # of the learner's training time it waited for rollouts, 0 to 1
    update_s: float  # training seconds of a mean update
    updates: int  # trained at it
    this: bool  # the run that is looked at


class Depths:
    """Blocking, one thread at a time. A run whose records have not changed is not read again."""

    def __init__(self, run: RunDirectory) -> None:
        """Neighbours are the runs in the same folder."""
        self._run = run
        self._known: dict[Path, tuple[tuple[int, int], list[DepthPoint | None]]] = {}

    def read(self, own_times: Mapping[int | None, DepthTime]) -> list[DepthPoint]:
        """Comparable runs by depth. Of this one, the training time at each depth it has had is given."""
        own = _config(self._run.config)
        if own is None:
            return []
        root = self._run.root.resolve()
        found = [_point(root.name, own, depth, time, this=True) for depth, time in own_times.items()]
        for path in sorted(root.parent.glob("*/config.toml")):
            other = _config(path)
            if path.parent != root and other is not None and _comparable(other) == _comparable(own):
                found += self._neighbour(RunDirectory(path.parent), other)
        return sorted((p for p in found if p is not None), key=lambda p: (p.depth, p.run))

    def _neighbour(self, run: RunDirectory, config: Mapping[str, Any]) -> list[DepthPoint | None]:
        if not run.metrics.exists():
            return []
        status = run.metrics.stat()
        stamp = (status.st_mtime_ns, status.st_size)
        known = self._known.get(run.root)
        if known is None or known[0] != stamp:
            columns = Columns()
            for line in read_json_lines(run.metrics):
                columns.add(line)
            times = columns.by_depth().items()
            known = (stamp, [_point(run.root.name, config, depth, time, this=False) for depth, time in times])
            self._known[run.root] = known
        return known[1]


def _point(
    name: str, config: Mapping[str, Any], depth: int | None, time: DepthTime, *, this: bool
) -> DepthPoint | None:
    total = sum(time.parts.values())
    if not total:
        return None
    return DepthPoint(
        run=name,
        depth=int(config["async_depth"]) if depth is None else depth,
        wait_share=time.parts["rollout_wait"] / total,
        update_s=total / time.updates,
        updates=time.updates,
        this=this,
    )


def _comparable(config: Mapping[str, Any]) -> Mapping[str, Any]:
    return {key: value for key, value in config.items() if key not in _FREE}


def _config(path: Path) -> dict[str, Any] | None:
    """A resolved configuration; None for a folder that is no run, or is one of another release."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError):
        return None
    return found if "async_depth" in found else None
