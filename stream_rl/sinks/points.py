"""From an event of the run to the numbers a sink can draw. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stream_rl.observe.records import number
from stream_rl.sinks.port import Point

_HELD_OUT = "eval"
_NO_NUMBERS = frozenset({"type", "step"})  # of a record; a point carries its step by itself


def point_of(event: Mapping[str, Any]) -> Point | None:
    """The point of an update or an evaluation; None for any other event, and for one without its step."""
    kind, step = event.get("type"), number(event, "step")
    if kind not in ("update", _HELD_OUT) or step is None:
        return None
    record = {key: value for key, value in event.items() if key != "type"}
    held_out = kind == _HELD_OUT
    prefix = f"{_HELD_OUT}/" if held_out else ""
    scalars = {f"{prefix}{'/'.join(path)}": value for path, value in leaves(record) if path[0] not in _NO_NUMBERS}
    alarms = event.get("alarms")
    if isinstance(alarms, list | tuple):
        scalars[f"{prefix}alarms"] = float(len(alarms))
    return Point(step=int(step), scalars=scalars, record=record, held_out=held_out)


def leaves(record: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], float]]:
    """Every finite number in nested mappings, with its path. What was not measured (null) has no leaf.

    >>> list(leaves({"lag": {"max": 2, "mean": None}, "loss": 0.5}))
    [(('lag', 'max'), 2.0), (('loss',), 0.5)]
    """
    for key, value in record.items():
        if isinstance(value, Mapping):
            for path, leaf in leaves(value):
                yield (str(key), *path), leaf
        elif (own := number(record, key)) is not None:
            yield (str(key),), own
