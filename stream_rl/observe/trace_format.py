"""Entries of Chrome's JSON trace format, which Perfetto reads. Times are whole microseconds. Pure.

https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Event = dict[str, Any]  # as the format has it


def arrow(id_: int, points: Sequence[tuple[int, int, int]]) -> Iterator[Event]:
    """Through (pid, tid, microsecond) of each slice. One point alone has nowhere to go."""
    if len(points) < 2:
        return
    last = 0
    for i, (pid, tid, at) in enumerate(points):
        last = max(last, at)
        kind = "s" if i == 0 else "f" if i == len(points) - 1 else "t"
        place = {"pid": pid, "tid": tid, "ts": last}
        yield {
            "ph": kind,
            "bp": "e",
            "cat": "group",
            "name": "group",
            "id": id_,
            **place,
        }  # "e": to the slice around it


def slice_(name: str, pid: int, tid: int, start: int, stop: int, facts: Mapping[str, Any] | None = None) -> Event:
    """Something that takes from `start` to `stop`, microseconds. Facts that are None are left out."""
    event: Event = {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": start, "dur": stop - start}
    known = {key: value for key, value in (facts or {}).items() if value is not None}
    return {**event, "args": known} if known else event


def instant(text: str, pid: int, tid: int, at: int, facts: Mapping[str, Any]) -> Event:
    """Something that happens at a moment of a role."""
    return {"ph": "i", "s": "p", "name": text, "pid": pid, "tid": tid, "ts": at, "args": dict(facts)}


def counter(name: str, pid: int, at: int, values: Mapping[str, float]) -> Event:
    """Values from this moment on."""
    return {"ph": "C", "name": name, "pid": pid, "ts": at, "args": dict(values)}


def named(what: str, name: str, pid: int, tid: int = 0) -> Event:
    """The name of a "process" or of a "thread"."""
    return {"ph": "M", "name": f"{what}_name", "pid": pid, "tid": tid, "args": {"name": name}}
