"""Time accounting: a role is in exactly one named state at each moment, so its shares add up to the total."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager


class StateClock:
    """Seconds spent in each of a fixed set of states. Pure: time comes from the injected monotonic `clock`.

    Counting starts at construction, in `initial` (by default the first state). Every interval between two readings
    of the clock is added to exactly one state, so the values of a snapshot sum to the time since construction.

    >>> now = 0.0
    >>> states = StateClock(["wait", "train"], lambda: now)
    >>> now = 2.0; states.enter("train"); now = 5.0
    >>> states.snapshot()
    {'wait': 2.0, 'train': 3.0}
    """

    def __init__(
        self, states: Sequence[str], clock: Callable[[], float] = time.monotonic, initial: str | None = None
    ) -> None:
        if not states or len(set(states)) != len(states):
            raise ValueError(f"states must be distinct and at least one, got {list(states)}")
        self._clock = clock
        self._seconds = dict.fromkeys(states, 0.0)
        self._reported = dict(self._seconds)
        self._state = self._known(states[0] if initial is None else initial)
        self._since = clock()

    @property
    def state(self) -> str:
        """The state that time is counted to now."""
        return self._state

    def enter(self, state: str) -> None:
        """Count time to `state` from now on. Raises `ValueError` for a state that was not declared."""
        state = self._known(state)
        self._settle()
        self._state = state

    @contextmanager
    def during(self, state: str) -> Iterator[None]:
        """Count the time of a block to `state`, then go back to the state before it. May be nested."""
        before = self._state
        self.enter(state)
        try:
            yield
        finally:
            self.enter(before)

    def snapshot(self) -> dict[str, float]:
        """Seconds by state since construction, in the declared order."""
        self._settle()
        return dict(self._seconds)

    def lap(self) -> dict[str, float]:
        """Seconds by state since the last `lap` (the first time: since construction)."""
        now = self.snapshot()
        lap = {state: seconds - self._reported[state] for state, seconds in now.items()}
        self._reported = now
        return lap

    def _settle(self) -> None:
        now = self._clock()
        self._seconds[self._state] += now - self._since
        self._since = now

    def _known(self, state: str) -> str:
        if state not in self._seconds:
            raise ValueError(f"unknown state {state!r}; declared are {', '.join(self._seconds)}")
        return state


class ActivityClock:
    """A `StateClock` for a role that does several things at once: the most important running one names the state.

    `priority` lists activities, most important first; `idle` is the state while none of them runs. An activity may
    run many times at once.
    """

    def __init__(self, priority: Sequence[str], idle: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._running = dict.fromkeys(priority, 0)
        self._idle = idle
        self._states = StateClock([*priority, idle], clock, initial=idle)

    @property
    def state(self) -> str:
        """The state that time is counted to now."""
        return self._states.state

    @contextmanager
    def during(self, activity: str) -> Iterator[None]:
        """`activity` runs once more while the block does."""
        self._change(activity, 1)
        try:
            yield
        finally:
            self._change(activity, -1)

    def snapshot(self) -> dict[str, float]:
        """Seconds by state since construction; the idle state comes last."""
        return self._states.snapshot()

    def lap(self) -> dict[str, float]:
        """Seconds by state since the last `lap`."""
        return self._states.lap()

    def _change(self, activity: str, by: int) -> None:
        if activity not in self._running:
            raise ValueError(f"unknown activity {activity!r}; declared are {', '.join(self._running)}")
        self._running[activity] += by
        state = next((name for name, count in self._running.items() if count), self._idle)
        if state != self._states.state:
            self._states.enter(state)
