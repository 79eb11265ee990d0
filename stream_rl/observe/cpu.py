"""CPU seconds that a role and everything it started have used. Waiting for a core is in none of them.

A process that has ended is not lost: the system adds what it used to its parent's account when that takes note of the
end. So the account of a tree is what its living processes used themselves, and what their ended children left them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import psutil

PidSource = Callable[[], Iterable[int]]
_LOOK_S = 10.0  # between two searches for new processes, which read every process of the machine; none is lost by it


class TreeSeconds(NamedTuple):
    """CPU seconds since the processes began."""

    whole: float  # of the process and all below it, the ended ones included
    own: float  # of the process alone
    below: dict[int, float]  # of the trees below some of those, by their topmost process


class Tree(Protocol):
    """A process with everything it started."""

    def seconds(self, tops: Sequence[int] = ()) -> TreeSeconds | None:
        """Its account, and that of the trees below `tops`, which are part of it. None: it has ended."""
        ...


class ProcessTree:
    """A real one. `pid` None: this process."""

    def __init__(self, pid: int | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._pid = os.getpid() if pid is None else pid
        self._clock = clock
        self._looked_s: float | None = None
        self._processes: dict[int, psutil.Process] = {}  # the topmost one first
        self._parents: dict[int, int] = {}

    def seconds(self, tops: Sequence[int] = ()) -> TreeSeconds | None:
        """Costs some microseconds a process, and every `_LOOK_S`, or when one of `tops` is new, some milliseconds."""
        late = self._looked_s is None or self._clock() - self._looked_s >= _LOOK_S
        if late or any(top not in self._processes for top in tops):
            self._look()
        while self._processes:
            used: dict[int, float] = {}
            own = 0.0
            for pid, process in self._processes.items():
                try:
                    times = process.cpu_times()
                except psutil.NoSuchProcess:
                    break  # its parent, who was read before it, has inherited its account by now: read all again
                used[pid] = times.user + times.system + times.children_user + times.children_system
                if pid == self._pid:
                    own = times.user + times.system
            else:
                return TreeSeconds(sum(used.values()), own, below(used, self._parents, tops))
            if pid == self._pid:
                self._processes.clear()
            else:
                del self._processes[pid]
        return None

    def _look(self) -> None:
        self._looked_s = self._clock()
        try:
            top = psutil.Process(self._pid)
            found = top.children(recursive=True)
        except psutil.NoSuchProcess:
            self._processes = {}
            return
        self._processes = {self._pid: top}
        for process in found:
            try:
                self._parents[process.pid] = process.ppid()
            except psutil.NoSuchProcess:
                continue
            self._processes[process.pid] = process
        self._parents = {pid: parent for pid, parent in self._parents.items() if pid in self._processes}


def below(used: Mapping[int, float], parents: Mapping[int, int], tops: Sequence[int]) -> dict[int, float]:
    """Sums of `used` over the trees below `tops`; a process counts to the nearest one. Ended tops are left out. Pure.

    >>> below({1: 5.0, 2: 1.0, 3: 0.5}, {2: 1, 3: 2}, tops=[2, 9])
    {2: 1.5}
    """
    sums = {top: 0.0 for top in tops if top in used}
    for pid, seconds in used.items():
        above: int | None = pid
        while above is not None and above not in sums:
            above = parents.get(above)
        if above is not None:
            sums[above] += seconds
    return sums


class CpuClock:
    """What was used since the last lap by this process, by what it started, and by processes beside it.

    role: name of this process's account, and of everything it started that has no other
    children: name of what it started and `parts` does not hold; None: counts to `role`
    parts: name -> topmost processes now, which this process started; they may come and go
    beside: name -> processes that somebody else started, on the same machine
    tree: how the tree of a process is read; None is this process

    It counts from its construction on. What a process of `parts` used between the last lap and its end counts to
    `children`.
    """

    def __init__(
        self,
        role: str,
        *,
        children: str | None = None,
        parts: Mapping[str, PidSource] | None = None,
        beside: Mapping[str, PidSource] | None = None,
        tree: Callable[[int | None], Tree] = ProcessTree,
    ) -> None:
        self._role = role
        self._children = children or role
        self._parts = dict(parts or {})
        self._beside = dict(beside or {})
        self._tree = tree
        self._own = tree(None)
        self._before = TreeSeconds(0.0, 0.0, {})
        self._neighbours: dict[int, Tree] = {}
        self._neighbours_before: dict[int, float] = {}
        self.lap()

    def lap(self) -> dict[str, float]:
        """Seconds by name since the last lap, or since construction; each at least 0."""
        tops = {name: list(pids()) for name, pids in self._parts.items()}
        before = self._before
        found = self._own.seconds([pid for pids in tops.values() for pid in pids]) or before
        self._before = found
        lap = {name: sum(_since(pid, found.below, before.below) for pid in pids) for name, pids in tops.items()}
        own = found.own - before.own
        # Nothing below 0: a process whose parent had ended before it leaves its account to nobody.
        lap[self._children] = max(0.0, found.whole - before.whole - own - sum(lap.values()))
        lap[self._role] = lap.get(self._role, 0.0) + own
        return lap | {name: sum(map(self._used_beside, pids())) for name, pids in self._beside.items()}

    def _used_beside(self, pid: int) -> float:
        if pid not in self._neighbours:
            self._neighbours[pid] = self._tree(pid)
        if (found := self._neighbours[pid].seconds()) is None:
            return 0.0
        before = self._neighbours_before.get(pid, 0.0)
        self._neighbours_before[pid] = found.whole
        return max(0.0, found.whole - before)


def _since(pid: int, now: Mapping[int, float], before: Mapping[int, float]) -> float:
    return max(0.0, now[pid] - before.get(pid, 0.0)) if pid in now else 0.0
