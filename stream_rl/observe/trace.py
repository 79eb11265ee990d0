"""A run as a trace for Perfetto (https://ui.perfetto.dev): one track for each role, an arrow through them a group.

Times come from two sources. When a group was leased, produced, judged, selected and trained is in the ledger, to the
microsecond. How long a role was in which state is in the metrics, as a sum for each update: the sums are drawn one
after another, ending when the update was reported, since the order within an update is not recorded.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import msgspec

from stream_rl.observe.archive import Archive, ArchivedTask
from stream_rl.observe.lanes import lanes
from stream_rl.observe.records import number, numbers, table
from stream_rl.observe.rundir import RunDirectory, read_json_lines
from stream_rl.observe.summary import ordered
from stream_rl.observe.trace_format import Event, arrow, counter, instant, named, slice_
from stream_rl.observe.update_windows import Window, in_a_row, windows
from stream_rl.observe.walks import Phase, Walk, walks
from stream_rl.observe.words import sentence

ORCHESTRATOR, LEARNER, JUDGE, PRODUCERS = "orchestrator", "learner", "judge", "producers"
_STATES, _EVENTS, _FIRST_PART, _FIRST_LANE = 1, 2, 3, 100  # threads of a role
_PRODUCER = re.compile(r"producer-\d+")
_NO_ROLE = frozenset({"weights"})  # the entry of `roles` that holds weight updates
_LEARNER_PARTS = ("rollout_wait", "judge_wait", "other", "prox", "teacher", "train", "publish")  # as they mostly follow
_TRAINS = "train"
_COUNTED = ("rolled out", "judged", "waits for its round", "at the learner")


class TraceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a trace holds."""

    events: int  # entries of the file
    groups: int  # with an arrow or the beginning of one
    updates: int  # drawn at the learner
    seconds: float  # it covers


def write_trace(run: RunDirectory, file: Path) -> TraceFacts:
    """Write the trace of a run, finished or not; a name that ends in .gz is compressed. Raises `LedgerError`."""
    with Archive(run.ledger) as archive:
        found, tasks = walks(archive.transitions()), archive.tasks()
    trace = Trace(
        run.root.resolve().name,
        found,
        tasks,
        lines=ordered(read_json_lines(run.metrics)),
        evals=list(read_json_lines(run.eval)),
        events=list(read_json_lines(run.events)),
    )
    partial = file.with_name(f".{file.name}.partial")
    opened: Callable[..., Any] = gzip.open if file.suffix == ".gz" else open
    with opened(partial, "wt", encoding="utf-8") as out:
        count = _write(trace, out)
    os.replace(partial, file)
    return TraceFacts(events=count, groups=len(found), updates=len(trace.windows), seconds=trace.seconds)


def _write(trace: Trace, out: IO[str]) -> int:
    head = {"displayTimeUnit": "ms", "otherData": {"run": trace.name, "began": trace.origin}}
    out.write(json.dumps(head)[:-1] + ', "traceEvents": [\n')
    count = 0
    for count, event in enumerate(trace.entries(), 1):
        out.write((",\n" if count > 1 else "") + json.dumps(event, separators=(",", ":"), allow_nan=False))
    out.write("\n]}\n")
    return count


class Trace:
    """The entries of a trace, in any order, as the format allows."""

    def __init__(
        self,
        name: str,
        found: Sequence[Walk],
        tasks: Mapping[str, ArchivedTask],
        *,
        lines: Sequence[Mapping[str, Any]],
        evals: Sequence[Mapping[str, Any]],
        events: Sequence[Mapping[str, Any]],
    ) -> None:
        """From the walks and tasks of the ledger's groups and the records of a run's three files."""
        self.name = name
        self.windows = windows(lines, found)
        self._walks = found
        self._tasks = tasks
        self._evals = evals
        self._events = [e for e in events if number(e, "at") is not None]
        moments = [float(e["at"]) for e in self._events]
        starts = [*(w.start for w in found), *(w.start for w in self.windows), *moments]
        starts += [begun for window in self.windows[:1] for begun in _begun(window).values()]
        stops = [*(w.stop for w in found), *(w.stop for w in self.windows), *moments]
        self.origin = min(starts, default=0.0)  # seconds since 1970 of the trace's 0
        self.seconds = max(stops, default=self.origin) - self.origin
        named_ = sorted({name for window in self.windows for name in table(window.line, "roles")} - _NO_ROLE)
        roles = {_role_of(name) for name in named_}
        producers = sorted(role for role in roles if _PRODUCER.fullmatch(role))
        # The ledger does not say who rolled a group out; with one producer nobody else can have.
        self._rolling = producers[0] if len(producers) == 1 else PRODUCERS
        known = [ORCHESTRATOR, *([] if self._rolling in producers else [PRODUCERS]), *producers, JUDGE, LEARNER]
        self._roles = [*known, *sorted(roles - set(known))]
        parts = [name for name in named_ if "/" in name]
        self._threads = {name: _FIRST_PART + i for i, name in enumerate(parts)}  # of a role's parts; others: states

    def entries(self) -> Iterator[Event]:
        """Names of tracks, slices, arrows, what happened, counters."""
        yield from self._names()
        yield from self._learner()
        yield from self._states()
        yield from self._groups()
        yield from self._told()
        yield from self._counters()

    def _pid(self, role: str) -> int:
        return self._roles.index(role) + 1

    def _us(self, at: float) -> int:
        return round((at - self.origin) * 1e6)

    def _names(self) -> Iterator[Event]:
        for role in self._roles:
            pid = self._pid(role)
            yield named("process", role, pid)
            yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}
            yield named("thread", "updates" if role == LEARNER else "states", pid, _STATES)
        for name, tid in self._threads.items():
            yield named("thread", name.partition("/")[2], self._pid(_role_of(name)), tid)
        yield named("thread", "what happened", self._pid(ORCHESTRATOR), _EVENTS)

    def _learner(self) -> Iterator[Event]:
        pid = self._pid(LEARNER)
        for window in self.windows:
            start, stop = self._us(window.start), self._us(window.stop)
            facts = {key: number(window.line, *path) for key, path in _FACTS.items()}
            yield slice_(f"update {window.step}", pid, _STATES, start, stop, facts)
            for name, begin, end in self._parts(window):
                yield slice_(name, pid, _STATES, begin, end)

    def _parts(self, window: Window) -> list[tuple[str, int, int]]:
        seconds = numbers(window.line, "learner")
        parts = {name: seconds.get(f"{name}_s", 0.0) for name in _LEARNER_PARTS}
        return in_a_row(parts, self._us(window.start), self._us(window.stop))

    def _states(self) -> Iterator[Event]:
        before: Window | None = None
        for window in self.windows:
            for name, begun in _begun(window).items():
                start = max(begun, before.stop) if before else begun
                row = in_a_row(numbers(window.line, "roles", name), self._us(start), self._us(window.stop))
                for state, begin, end in row:
                    tid = self._threads.get(name, _STATES)
                    yield slice_(state.replace("_", " "), self._pid(_role_of(name)), tid, begin, end)
            before = window

    def _groups(self) -> Iterator[Event]:
        """A slice for each phase at the role it is at, and an arrow from lease to training."""
        drawn = [self._drawn(walk) for walk in self._walks]
        orchestrator = self._pid(ORCHESTRATOR)
        places = lanes([(row[0][1], row[-1][2]) for row in drawn])
        at = {"rolled out": self._lanes_of("rolled out", drawn), "judged": self._lanes_of("judged", drawn)}
        roles = {"rolled out": self._rolling, "judged": JUDGE}
        trains = {window.step: window for window in self.windows}
        used: dict[int, set[int]] = {orchestrator: set(places)}
        for i, (walk, row, place) in enumerate(zip(self._walks, drawn, places, strict=True)):
            tid = _FIRST_LANE + place
            facts = self._facts(walk)
            yield slice_(walk.group_id, orchestrator, tid, row[0][1], row[-1][2], facts)
            points: dict[str, tuple[int, int, int]] = {}
            for k, (phase, start, stop) in enumerate(row):
                yield slice_(phase.name, orchestrator, tid, start, stop, {"detail": phase.detail})
                role = roles.get(phase.name)
                if role is not None:
                    pid, lane = self._pid(role), at[phase.name][i, k]
                    used.setdefault(pid, set()).add(lane)
                    yield slice_(walk.group_id, pid, _FIRST_LANE + lane, start, stop, facts)
                    points[phase.name] = (pid, _FIRST_LANE + lane, start)
                elif phase.name == "waits for its round":
                    points[phase.name] = (orchestrator, tid, start)
                if phase.name == "rolled out":  # of several leases the last one counts
                    points = {"lease": (orchestrator, tid, start), phase.name: points[phase.name]}
            if walk.end == "trained" and walk.end_detail is not None and (window := trains.get(int(walk.end_detail))):
                begun = min(max(self._trains_at(window), row[-1][1]), self._us(window.stop))
                points["trained"] = (self._pid(LEARNER), _STATES, begun)
            yield from arrow(i + 1, list(points.values()))
        for pid, found in used.items():
            for lane in sorted(found):
                yield named("thread", f"group {lane + 1}", pid, _FIRST_LANE + lane)

    def _drawn(self, walk: Walk) -> list[tuple[Phase, int, int]]:
        """Whole microseconds, at least one each, none overlapping the next."""
        row: list[tuple[Phase, int, int]] = []
        for phase in walk.phases:
            start = max(self._us(phase.start), row[-1][2]) if row else self._us(phase.start)
            row.append((phase, start, max(start + 1, self._us(phase.stop))))
        return row

    def _lanes_of(self, name: str, drawn: Sequence[Sequence[tuple[Phase, int, int]]]) -> dict[tuple[int, int], int]:
        """(group, phase) -> lane, of the phases of this name."""
        spans = sorted(
            (start, stop, i, k)
            for i, row in enumerate(drawn)
            for k, (phase, start, stop) in enumerate(row)
            if phase.name == name
        )
        found = lanes([(start, stop) for start, stop, _, _ in spans])
        return {(i, k): lane for (_, _, i, k), lane in zip(spans, found, strict=True)}

    def _trains_at(self, window: Window) -> int:
        """Where forward and backward begin; the window's beginning where that was not measured."""
        found = (begin for name, begin, _ in self._parts(window) if name == _TRAINS)
        return next(found, self._us(window.start))

    def _facts(self, walk: Walk) -> Mapping[str, Any]:
        task = self._tasks.get(walk.group_id)
        what = {"task": f"{task.environment}/{task.split}/{task.index}", "round": task.round} if task else {}
        return {**what, "end": walk.end or "none yet", "of": walk.end_detail}

    def _told(self) -> Iterator[Event]:
        """Events as they are told on the board, and evaluations, whose clock is that of the nearest update."""
        pid = self._pid(ORCHESTRATOR)
        for event in self._events:
            yield instant(sentence(event), pid, _EVENTS, self._us(event["at"]), {"type": event.get("type")})
        for record in self._evals:
            if (began := self._at(number(record, "wall_s"))) is None:
                continue
            at = max(0, self._us(began))
            yield instant(sentence({"type": "eval", **record}), pid, _EVENTS, at, {"type": "eval"})
            if (success := number(record, "success", "overall")) is not None:
                yield counter("held-out success", pid, at, {"success": success})

    def _at(self, wall_s: float | None) -> float | None:
        """Seconds since 1970 of a moment of the run's own clock, which stands still between a crash and a resume."""
        known = [w for w in self.windows if number(w.line, "wall_s") is not None]
        if wall_s is None or not known:
            return None
        nearest = min(known, key=lambda w: abs(w.line["wall_s"] - wall_s))
        return nearest.stop + wall_s - float(nearest.line["wall_s"])

    def _counters(self) -> Iterator[Event]:
        pid = self._pid(ORCHESTRATOR)
        for window in self.windows:
            for name, path in _CURVES.items():
                if (value := number(window.line, *path)) is not None:
                    yield counter(name, pid, self._us(window.stop), {name: value})
        changes = sorted(
            (moment, phase.name, change)
            for walk in self._walks
            for phase in walk.phases
            for moment, change in ((self._us(phase.start), 1), (self._us(phase.stop), -1))
        )
        count = dict.fromkeys(_COUNTED, 0)
        for i, (moment, name, change) in enumerate(changes):
            count[name] += change
            if i + 1 == len(changes) or changes[i + 1][0] != moment:
                yield counter("groups", pid, moment, dict(count))


_FACTS: Mapping[str, tuple[str, ...]] = {
    "success": ("success", "train"),
    "lag max": ("lag", "max"),
    "loss": ("loss",),
    "tokens trained": ("tokens", "trained"),
    "groups": ("groups", "selected"),
}
_CURVES: Mapping[str, tuple[str, ...]] = {"training success": ("success", "train"), "lag": ("lag", "max")}


def _role_of(name: str) -> str:
    """The role whose track an entry of `roles` belongs to: "producer-0/generator" is a part of "producer-0"."""
    head = name.partition("/")[0]
    return JUDGE if head == "judging" else head


def _begun(window: Window) -> dict[str, float]:
    """Since when a window's line counts each role's time, seconds since 1970."""
    names = [name for name in table(window.line, "roles") if name not in _NO_ROLE and name != LEARNER]
    return {name: window.stop - sum(numbers(window.line, "roles", name).values()) for name in names}
