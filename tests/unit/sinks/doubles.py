"""Sinks that do what real ones may do, on command."""

from __future__ import annotations

import threading

from stream_rl.sinks.port import Point, RunFacts


class Kept:
    """Keeps what it is given. `log` outlives it."""

    def __init__(self, log: list[str]) -> None:
        self._log = log

    def write(self, point: Point) -> None:
        self._log.append(f"{'eval' if point.held_out else 'update'} {point.step}")

    def close(self) -> None:
        self._log.append("closed")


class Broken(Kept):
    """Raises at the point of one step."""

    def __init__(self, log: list[str], step: int) -> None:
        super().__init__(log)
        self._step = step

    def write(self, point: Point) -> None:
        if point.step == self._step:
            raise ConnectionError("no route to host")
        super().write(point)


class Followed(Kept):
    """Says when it has written the point of one step."""

    def __init__(self, log: list[str], step: int, written: threading.Event) -> None:
        super().__init__(log)
        self._step = step
        self._written = written

    def write(self, point: Point) -> None:
        super().write(point)
        if point.step == self._step:
            self._written.set()


class Stuck(Kept):
    """Does not come back from a call until `free` is set."""

    def __init__(self, log: list[str], free: threading.Event) -> None:
        super().__init__(log)
        self._free = free

    def write(self, point: Point) -> None:
        self._free.wait()
        super().write(point)


def refuses(facts: RunFacts) -> Kept:
    raise PermissionError(f"{facts.name} is not yours")
