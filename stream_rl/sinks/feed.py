"""One sink in a thread of its own, so that whatever it does the run goes on."""

from __future__ import annotations

import threading
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import closing

from stream_rl.causes import in_words
from stream_rl.sinks.port import Point, Sink

CAPACITY = 1000  # points that may wait: far more updates than a sink is ever behind while it works at all


class Feed:
    """consumes: points. waits for: the sink. produces: nothing. unblocked by: a point, the end.

    A plain thread rather than one of the event loop's: an interpreter that ends would wait for those, and a sink that
    hangs must not keep a run from ending.
    """

    def __init__(self, name: str, start: Callable[[], Sink], tell: Callable[[str], None]) -> None:
        """Start the thread, in which `start` makes the sink. `tell` is called from it, at most once."""
        self._start = start
        self._tell = tell
        self._points: deque[Point] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._over = False
        self._thread = threading.Thread(target=self._work, name=f"sink-{name}", daemon=True)
        self._thread.start()

    def put(self, point: Point) -> None:
        """Hand over one point. Never waits: a sink that has fallen hopelessly behind is given up."""
        with self._changed:
            if self._over or self._closing:
                return
            behind = len(self._points) >= CAPACITY
            if not behind:
                self._points.append(point)
                self._changed.notify()
        if behind:
            self._give_up(f"it is {CAPACITY} points behind: nobody there takes them")

    def end(self) -> None:
        """Nothing more will come. Returns at once."""
        with self._changed:
            self._closing = True
            self._changed.notify()

    def wait(self, seconds: float) -> None:
        """After `end`: until everything is written out, for so long at most. What is still there then is lost."""
        self._thread.join(seconds)
        if self._thread.is_alive():
            self._give_up("it was not done in time after the end of the run; what it held back is lost")

    @property
    def stuck(self) -> bool:
        """After `wait`: the sink did not come back."""
        return self._thread.is_alive()

    def _work(self) -> None:
        try:
            with closing(self._start()) as sink:
                while (point := self._next()) is not None:
                    sink.write(point)
        except Exception as error:  # of somebody else's package: it may be anything, and is told
            traceback.print_exc()
            self._give_up(in_words(error))

    def _next(self) -> Point | None:
        """The oldest waiting point; None at the end, and once the sink was given up."""
        with self._changed:
            self._changed.wait_for(lambda: self._points or self._closing or self._over)
            return self._points.popleft() if self._points and not self._over else None

    def _give_up(self, problem: str) -> None:
        with self._changed:
            first, self._over = not self._over, True
            self._points.clear()
            self._changed.notify()
        if first:
            self._tell(problem)
