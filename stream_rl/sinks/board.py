"""The run's board with sinks behind it: each event is shown, and what has numbers goes on to every sink."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from functools import partial
from types import TracebackType
from typing import Any

from stream_rl.observe.rundir import RunDirectory, append_json
from stream_rl.sinks.feed import Feed
from stream_rl.sinks.points import point_of
from stream_rl.sinks.port import RunFacts, Sink

FLUSH_S = 30.0  # all sinks together may take after the end of the run
HURRY_S = 1.0  # the same, once somebody wants to leave
LOG = "sinks.log"

Board = Callable[[Mapping[str, Any]], None]


class SinkBoard:
    """A context manager; call it with each event, from one thread. Leaving it writes out what sinks hold back.

    What sinks print while it is open goes to `logs/sinks.log`: standard output belongs to the board.
    """

    def __init__(
        self,
        board: Board,
        run: RunDirectory,
        starts: Mapping[str, Callable[[RunFacts], Sink]],
        facts: RunFacts,
        *,
        flush_s: float = FLUSH_S,
    ) -> None:
        """`starts` by the name the sink is told by. Without any this is `board` and nothing else."""
        self._board = board
        self._run = run
        self._starts = starts
        self._facts = facts
        self._flush_s = flush_s
        self._feeds: list[Feed] = []
        self._showing = threading.Lock()
        self._redirected = ExitStack()

    def __enter__(self) -> SinkBoard:
        if self._starts:
            log = self._redirected.enter_context((self._run.logs / LOG).open("a", encoding="utf-8", buffering=1))
            self._redirected.enter_context(redirect_stdout(log))
            self._redirected.enter_context(redirect_stderr(log))
        self._feeds = [
            Feed(name, partial(start, self._facts), partial(self._failed, name)) for name, start in self._starts.items()
        ]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._redirected:
            deadline = time.monotonic() + self._flush_s
            for feed in self._feeds:
                feed.end()
            for feed in self._feeds:
                feed.wait(max(0.0, deadline - time.monotonic()))

    def hurry(self) -> None:
        """Leave without waiting for slow sinks: somebody wants the run to end at once."""
        self._flush_s = min(self._flush_s, HURRY_S)

    @property
    def stuck(self) -> bool:
        """After leaving: a sink did not come back, and exit handlers of its package might not either."""
        return any(feed.stuck for feed in self._feeds)

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Show one event and hand its numbers on. Never waits for a sink."""
        with self._showing:
            self._board(event)
        point = point_of(event) if self._feeds else None
        if point is not None:
            for feed in self._feeds:
                feed.put(point)

    def _failed(self, name: str, problem: str) -> None:
        """Told once for each sink; the run goes on without it."""
        record = {
            "type": "sink",
            "at": time.time(),
            "name": name,
            "problem": problem,
            "log": str(self._run.logs / LOG),
        }
        with self._showing:  # two sinks may fail at once: the file and the board tell of them in the same order
            append_json(self._run.events, record)
            self._board(record)
