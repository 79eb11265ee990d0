"""Spans of time on as few lines as there are at once. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def lanes(spans: Sequence[tuple[int, int]]) -> list[int]:
    """The lane of each span [start, stop), spans in order of start: the lowest that is free.

    >>> lanes([(0, 10), (2, 5), (5, 7), (10, 12)])
    [0, 1, 1, 0]
    """
    free: list[int] = []
    busy: list[tuple[int, int]] = []  # (stop, lane)
    out = []
    for start, stop in spans:
        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        lane = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (stop, lane))
        out.append(lane)
    return out
