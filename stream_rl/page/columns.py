"""The numbers of many metrics lines, one column each: kept compactly, thinned out for a screen, added up. Pure."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from stream_rl.observe.learner_time import learner_time
from stream_rl.observe.records import number, numbers, table

Floats = npt.NDArray[np.float64]

_NAN = float("nan")
_DIGITS = 5  # significant ones; a screen shows fewer
_RECENT = 20  # lines whose role times tell what a role is doing lately
_SINGLE = ("reward_mean", "loss", "entropy", "kl_behavior", "async_depth")
_SECTIONS = (("success",), ("success", "by_env"), ("lag",))
_LARGEST = frozenset({"lag/max"})  # of several lines the largest is shown, not the mean
_SUMS = {
    "lag": ("lag", "histogram"),
    "discarded": ("groups", "discarded"),
    "tokens": ("tokens",),
}


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """Columns [points]. A point stands for one update, or for the mean of several that follow each other."""

    step: list[int]  # newest update of each point
    columns: dict[str, list[float | None]]  # None: not measured
    updates: int  # updates the points stand for


class DepthTime(msgspec.Struct, kw_only=True):
    """The learner's training time at one async depth; evaluation and start-up left out."""

    parts: dict[str, float]  # seconds by part, see `learner_time.PARTS`
    updates: int = 0  # trained at it

    def add(self, parts: Mapping[str, float]) -> None:
        """One more update."""
        _accumulate(self.parts, parts)
        self.updates += 1


class Columns:
    """Takes metrics lines in order. An update that comes again, after a resume, replaces those from it on.

    A column's name is the path of its number: "success/by_env/household".

    >>> columns = Columns()
    >>> columns.add({"step": 0, "loss": 1.0}); columns.add({"step": 1, "loss": 3.0})
    >>> columns.slice(since=-1, points=1)
    Slice(step=[1], columns={'loss': [2.0]}, updates=2)
    """

    def __init__(self) -> None:
        self.replaced = 0  # how often updates have been taken back
        self.last: Mapping[str, Any] = {}  # the newest line
        self._steps = array("q")
        self._columns: dict[str, array[float]] = {}
        self._sums: dict[str, dict[str, float]] = {name: {} for name in (*_SUMS, "lag_by_origin")}
        self._by_depth: dict[int | None, DepthTime] = {}
        self._roles: dict[str, dict[str, float]] = {}
        self._recent: deque[dict[str, dict[str, float]]] = deque(maxlen=_RECENT)

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, line: Mapping[str, Any]) -> None:
        """One line. Lines without an update's number are left out."""
        step = number(line, "step")
        if step is None:
            return
        if self._steps and step <= self._steps[-1]:
            self._cut(int(step))
        count = len(self._steps)
        self._steps.append(int(step))
        training = learner_time(line, number(self.last, "train_s") if self.last else 0.0).parts
        depth = number(line, "async_depth")
        self._at_depth(None if depth is None else int(depth)).add(training)
        for name, value in (*_leaves(line), *_waits(training)):
            column = self._columns.setdefault(name, array("d"))
            column.extend([_NAN] * (count - len(column)))
            column.append(value)
        for name, path in _SUMS.items():
            _accumulate(self._sums[name], numbers(line, *path))
        for origin in table(line, "lag", "by_origin"):
            lags = numbers(line, "lag", "by_origin", origin)
            _accumulate(self._sums["lag_by_origin"], {f"{origin}/{lag}": n for lag, n in lags.items()})
        roles = _roles(line)
        for role, states in roles.items():
            _accumulate(self._roles.setdefault(role, {}), states)
        self._recent.append(roles)
        self.last = line

    def slice(self, *, since: int, points: int) -> Slice:
        """Updates after `since`, as at most `points` points."""
        steps = np.frombuffer(self._steps, dtype=np.int64) if self._steps else np.zeros(0, np.int64)
        start = int(np.searchsorted(steps, since, side="right"))
        count = len(steps) - start
        if count == 0:
            return Slice(step=[], columns={}, updates=0)
        edges = np.unique(np.linspace(0, count, min(points, count) + 1).astype(np.int64))
        ends = start + edges[1:] - 1
        columns = {
            name: _thinned(self._from(column, start, count), edges[:-1], largest=name in _LARGEST)
            for name, column in self._columns.items()
            if len(column) > start
        }
        return Slice(step=steps[ends].tolist(), columns=columns, updates=count)

    def totals(self) -> dict[str, dict[str, float]]:
        """Sums over all updates: trained groups by lag, discarded groups by reason, tokens by kind."""
        return self._sums

    def by_depth(self) -> dict[int | None, DepthTime]:
        """The learner's training time by the async depth that was in force; None: the line does not say."""
        return self._by_depth

    def roles(self) -> dict[str, dict[str, float]]:
        """Role -> state -> seconds, over all updates. The learner is one of them."""
        return self._roles

    def recent_roles(self) -> dict[str, dict[str, float]]:
        """The same over the newest twenty updates."""
        found: dict[str, dict[str, float]] = {}
        for roles in self._recent:
            for role, states in roles.items():
                _accumulate(found.setdefault(role, {}), states)
        return found

    def _at_depth(self, depth: int | None) -> DepthTime:
        return self._by_depth.setdefault(depth, DepthTime(parts={}))

    def _from(self, column: array[float], start: int, count: int) -> Floats:
        values = np.full(count, _NAN)
        known = column[start:]
        values[: len(known)] = known
        return values

    def _cut(self, step: int) -> None:
        """Take updates from `step` on back. Sums keep what was done twice: it did cost that."""
        keep = int(np.searchsorted(np.array(self._steps), step))
        del self._steps[keep:]
        for column in self._columns.values():
            del column[keep:]
        self.replaced += 1


def _accumulate(total: dict[str, float], values: Mapping[str, float]) -> None:
    for key, value in values.items():
        total[key] = total.get(key, 0.0) + value


def _leaves(line: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name in _SINGLE:
        if (value := number(line, name)) is not None:
            yield name, value
    for path in _SECTIONS:
        for key, value in numbers(line, *path).items():
            yield "/".join((*path, key)), value


def _waits(training: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """Shares of the update's training time, evaluation and start-up left out."""
    total = sum(training.values())
    if total > 0:
        for part in ("rollout_wait", "judge_wait"):
            yield f"share/{part}", training[part] / total


def _roles(line: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Seconds of every role by state. `weights` counts pauses of all generators together and is no role."""
    learner = {part.removesuffix("_s"): s for part, s in numbers(line, "learner").items() if part != "total_s"}
    others = {str(name): numbers(line, "roles", name) for name in table(line, "roles") if name != "weights"}
    return {**({"learner": learner} if learner else {}), **others}


def _thinned(values: Floats, starts: npt.NDArray[np.int64], *, largest: bool) -> list[float | None]:
    """Mean, or largest, of the known values of each part."""
    known = ~np.isnan(values)
    counts = np.add.reduceat(known, starts, dtype=np.int64)
    if largest:
        out = np.maximum.reduceat(np.where(known, values, -np.inf), starts)
    else:
        out = np.add.reduceat(np.where(known, values, 0.0), starts) / np.maximum(counts, 1)
    return [value if some else None for value, some in zip(_rounded(out), counts.tolist(), strict=True)]


def _rounded(values: Floats) -> list[float]:
    # Far smaller ones become 0, far larger ones stay as they are: a power of ten beyond these would overflow.
    size = np.clip(np.abs(np.nan_to_num(values)), 1e-200, 1e200)
    scale = 10.0 ** (_DIGITS - 1 - np.floor(np.log10(size)))
    rounded: list[float] = (np.round(values * scale) / scale).tolist()
    return rounded
