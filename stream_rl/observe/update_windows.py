"""When each update took place, and how its parts are laid out in that time. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from stream_rl.observe.records import number
from stream_rl.observe.walks import Walk


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """The time of one update at the learner."""

    step: int  # update
    start: float  # seconds since 1970
    stop: float  # seconds since 1970: its groups are trained, its weights published
    line: Mapping[str, Any]  # of metrics.jsonl


def windows(lines: Iterable[Mapping[str, Any]], found: Iterable[Walk]) -> list[Window]:
    """When each update took place: it ends as its groups are trained and lasts as long as the learner says.

    An update of which the ledger knows no trained group has none; nor has one that ended before the one before it,
    since somebody set the clock back.
    """
    trained: dict[str, float] = {}
    for walk in found:
        if walk.end == "trained" and walk.end_detail is not None:
            trained[walk.end_detail] = max(walk.stop, trained.get(walk.end_detail, walk.stop))
    out: list[Window] = []
    for line in lines:
        step, total = number(line, "step"), number(line, "learner", "total_s")
        if step is None or total is None or (stop := trained.get(str(int(step)))) is None:
            continue
        if out and stop <= out[-1].stop:
            continue
        begun = stop - total
        out.append(Window(step=int(step), start=max(begun, out[-1].stop) if out else begun, stop=stop, line=line))
    return out


def in_a_row(seconds: Mapping[str, float], start: int, stop: int) -> list[tuple[str, int, int]]:
    """Parts one after another that end at `stop` (microseconds); squeezed evenly where there is too little room."""
    total = sum(seconds.values())
    if total <= 0 or stop <= start:
        return []
    scale = min(1.0, (stop - start) / (total * 1e6))
    edge = stop - total * scale * 1e6
    out = []
    for name, value in seconds.items():
        begin, edge = edge, edge + value * scale * 1e6
        if round(begin) < round(edge):
            out.append((name, max(start, round(begin)), min(stop, round(edge))))
    return out
