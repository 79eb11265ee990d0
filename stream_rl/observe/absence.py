"""Why a generator is not there: the last thing a run's events say about it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stream_rl.observe.records import number
from stream_rl.observe.words import show

_BACK = frozenset({"producer_ready", "generator_attached"})


def why_absent(events: Iterable[Mapping[str, Any]], name: str) -> str:
    """What befell the producer `name` since it was last started or ready; empty when nothing did.

    >>> why_absent([{"type": "generator_dropped", "name": "producer-1", "reason": "no server there"}], "producer-1")
    'dropped: no server there'
    """
    told = ""
    for event in events:
        if event.get("name") != name:
            continue
        match event.get("type"):
            case "generator_dropped":
                told = f"dropped: {show(event.get('reason'))}"
            case "role_restarted":
                told = f"tried again after {show(number(event, 'wait_s'), '.0f')} s: {show(event.get('reason'))}"
            case kind if kind in _BACK:
                told = ""
    return told
