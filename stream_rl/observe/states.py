"""Time accounting: a role is in exactly one named state at each moment, so its shares add up to the total."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager


class _Account(ABC):
    """Seconds by state, in all and since the last lap. Time is only ever added to one state, or moved between two."""

    def __init__(self, states: Sequence[str], clock: Callable[[], float], since: float | None = None) -> None:
        if not states or len(set(states)) != len(states):
            raise ValueError(f"states must be distinct and at least one, got {list(states)}")
        self._clock = clock
        self._since = clock() if since is None else since
        self._seconds = dict.fromkeys(states, 0.0)
        self._reported = dict(self._seconds)
        self._held: dict[str, float] | None = None

    def snapshot(self) -> dict[str, float]:
        """Seconds by state since construction, in the declared order."""
        self._settle()
        return dict(self._seconds)

    def lap(self) -> dict[str, float]:
        """Seconds by state since the last `lap` (the first time: since construction), what is held left out."""
        now = self.snapshot() if self._held is None else self._held
        lap = {state: seconds - self._reported[state] for state, seconds in now.items()}
        self._reported = dict(now)
        return lap

    def hold(self) -> None:
        """What is counted from now on may still turn out to belong to another state: laps wait for `release`."""
        if self._held is not None:
            raise ValueError("an account is held once at a time")
        self._held = self.snapshot()

    def release(self, to: str, share: float, of: Iterable[str]) -> None:
        """`share` (0 to 1) of what was counted to the states `of` since `hold` belongs to `to`."""
        if self._held is None:
            raise ValueError("the account is not held")
        now, before, to = self.snapshot(), self._held, self._known(to)
        for state in of:
            moved = share * (now[state] - before[state])
            self._seconds[self._known(state)] -= moved
            self._seconds[to] += moved
        self._held = None

    def _settle(self) -> None:
        now = self._clock()
        self._count(now - self._since)
        self._since = now

    @abstractmethod
    def _count(self, seconds: float) -> None:
        """Add the seconds since the last settling."""

    def _known(self, state: str) -> str:
        if state not in self._seconds:
            raise ValueError(f"unknown state {state!r}; declared are {', '.join(self._seconds)}")
        return state


class StateClock(_Account):
    """Seconds spent in each of a fixed set of states. Pure: time comes from the injected monotonic `clock`.

    Counting starts at construction, or at `since`, in `initial` (by default the first state). Every interval between
    two readings of the clock is added to exactly one state, so the values of a snapshot sum to the time since then.

    >>> now = 0.0
    >>> states = StateClock(["wait", "train"], lambda: now)
    >>> now = 2.0; states.enter("train"); now = 5.0
    >>> states.snapshot()
    {'wait': 2.0, 'train': 3.0}
    """

    def __init__(
        self,
        states: Sequence[str],
        clock: Callable[[], float] = time.monotonic,
        initial: str | None = None,
        *,
        since: float | None = None,
    ) -> None:
        super().__init__(states, clock, since)
        self._state = self._known(states[0] if initial is None else initial)

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

    def _count(self, seconds: float) -> None:
        self._seconds[self._state] += seconds


class ActivityClock(_Account):
    """An account of a role that does several things at once: the most important running one names the state.

    `priority` lists activities, most important first; `idle` is the state while none of them runs. An activity may
    run many times at once.
    """

    def __init__(
        self,
        priority: Sequence[str],
        idle: str,
        clock: Callable[[], float] = time.monotonic,
        *,
        since: float | None = None,
    ) -> None:
        super().__init__([*priority, idle], clock, since)
        self._running = dict.fromkeys(priority, 0)
        self._idle = idle

    @property
    def state(self) -> str:
        """The state that time is counted to now."""
        return next((name for name, count in self._running.items() if count), self._idle)

    @contextmanager
    def during(self, activity: str) -> Iterator[None]:
        """`activity` runs once more while the block does."""
        self._change(activity, 1)
        try:
            yield
        finally:
            self._change(activity, -1)

    def _change(self, activity: str, by: int) -> None:
        if activity not in self._running:
            raise ValueError(f"unknown activity {activity!r}; declared are {', '.join(self._running)}")
        self._settle()
        self._running[activity] += by

    def _count(self, seconds: float) -> None:
        self._seconds[self.state] += seconds


class SlotClock(_Account):
    """Slot-seconds by state of `size` slots that each do one thing at a time, as the rollouts of a producer.

    A slot that nobody uses is `idle`. Slots only move from one state to another, so the values of a snapshot sum to
    slots times seconds. Where more are used at once than there are, there are that many from then on.

    >>> now = 0.0
    >>> slots = SlotClock(["generate", "environment"], "idle", size=2, clock=lambda: now)
    >>> with slots.during("generate"):
    ...     now = 3.0
    >>> slots.snapshot()
    {'generate': 3.0, 'environment': 0.0, 'idle': 3.0}
    """

    def __init__(
        self, states: Sequence[str], idle: str, *, size: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__([*states, idle], clock)
        self._idle = idle
        self._slots = dict.fromkeys(self._seconds, 0)
        self._slots[idle] = size

    @property
    def size(self) -> int:
        """Slots there are."""
        return sum(self._slots.values())

    def counts(self) -> dict[str, int]:
        """Slots in each state now."""
        return dict(self._slots)

    @contextmanager
    def during(self, state: str, *, of: str | None = None) -> Iterator[None]:
        """A slot that is in state `of` (idle, if not given) is in `state` while the block runs, then back."""
        before = self._idle if of is None else of
        self.move(before, state)
        try:
            yield
        finally:
            self.move(state, before)

    def move(self, before: str, after: str) -> None:
        """A slot goes from one state to another. Raises `ValueError` when none is in the first."""
        self._known(before), self._known(after)
        self._settle()
        if not self._slots[before]:
            if before != self._idle:
                raise ValueError(f"no slot is in state {before!r}: {self._slots}")
            self._slots[before] += 1
        self._slots[before] -= 1
        self._slots[after] += 1

    def _count(self, seconds: float) -> None:
        for state, slots in self._slots.items():
            self._seconds[state] += slots * seconds
