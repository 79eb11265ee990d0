"""Where a producer's time goes: its own, its generator's, its worlds', and that of each place for a rollout."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stream_rl.observe.states import ActivityClock, SlotClock

PAUSED, GENERATE, WRITE, ENVIRONMENT = "paused_for_sync", "generate", "write", "environment"
CREDIT, IDLE = "wait_for_credit", "wait_for_lease"
PLACE, OTHER = "wait_for_place", "other"  # of a slot only
COMPUTE, NOTHING = "compute", "idle"
_SAMPLING = (GENERATE, WRITE)


class Pause:
    """What an update turned out to be."""

    seconds: float | None = None  # in which no token was sampled; None: as far as is known, all of it


class ProducerAccount:
    """Told what goes on, it keeps four accounts, each of which adds up by itself.

    - role: the first of paused, generate, write, environment, wait for credit that goes on; else it waits for a lease
    - generator: paused, sampling, or idle
    - worlds, each: at least one call is computed, a rollout waits for a place, or idle
    - slots: `capacity` places for rollouts, each in one state
    """

    def __init__(self, *, capacity: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._role = ActivityClock([PAUSED, GENERATE, WRITE, ENVIRONMENT, CREDIT], IDLE, clock)
        self._generator = ActivityClock([PAUSED, *_SAMPLING], NOTHING, clock)
        self._worlds: dict[str, ActivityClock] = {}
        states = [PAUSED, *_SAMPLING, ENVIRONMENT, PLACE, CREDIT, OTHER]
        self._slots = SlotClock(states, IDLE, size=capacity, clock=clock)

    # what goes on

    @contextmanager
    def rollout(self) -> Iterator[None]:
        """A rollout has a slot. Between the calls below it renders, or keeps its record."""
        with self._slots.during(OTHER):
            yield

    @contextmanager
    def generating(self) -> Iterator[None]:
        """A rollout's turn is sampled."""
        with self._both(GENERATE), self._slots.during(GENERATE, of=OTHER):
            yield

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A rubric bundle is sampled, in a slot of its own."""
        with self._both(WRITE), self._slots.during(WRITE):
            yield

    @contextmanager
    def entering(self, environment: str) -> Iterator[None]:
        """A rollout waits for a place in a world."""
        with (
            self._role.during(ENVIRONMENT),
            self._world(environment).during(PLACE),
            self._slots.during(PLACE, of=OTHER),
        ):
            yield

    @contextmanager
    def acting(self, environment: str) -> Iterator[None]:
        """A world computes for a rollout."""
        with (
            self._role.during(ENVIRONMENT),
            self._world(environment).during(COMPUTE),
            self._slots.during(ENVIRONMENT, of=OTHER),
        ):
            yield

    @contextmanager
    def sending(self) -> Iterator[None]:
        """A message waits for the orchestrator to take it."""
        with self._role.during(CREDIT), self._slots.during(CREDIT):
            yield

    @contextmanager
    def updating(self, *, drained: bool) -> Iterator[Pause]:
        """New weights are taken in. Set `seconds` of what this yields to the pause that the generator reports.

        A generator reads and checks a version while it samples: only its pause is a pause. Nobody knows where in the
        update it lay, so the update's time is held back until it is over and then shared out. With `drained` nothing
        could be sampled all the while.
        """
        pause, began = Pause(), self._clock()
        accounts = (self._role, self._generator, self._slots)
        for account in accounts:
            account.hold()
        try:
            yield pause
        finally:
            took = self._clock() - began
            share = 1.0 if drained or pause.seconds is None or took <= 0 else min(1.0, pause.seconds / took)
            self._role.release(PAUSED, share, (GENERATE, WRITE, ENVIRONMENT, CREDIT, IDLE))
            self._generator.release(PAUSED, share, (*_SAMPLING, NOTHING))
            self._slots.release(PAUSED, share, (*_SAMPLING, IDLE) if drained else _SAMPLING)

    # what it came to

    def snapshot(self) -> dict[str, float]:
        """Seconds of the role by state since construction."""
        return self._role.snapshot()

    def lap(self) -> dict[str, float]:
        """Seconds of the role by state since the last lap."""
        return self._role.lap()

    def slots_lap(self) -> dict[str, float]:
        """Slot-seconds by state since the last lap."""
        return self._slots.lap()

    def parts_lap(self) -> dict[str, dict[str, float]]:
        """Seconds by state since the last lap of the generator and of every world that was entered so far."""
        worlds = {f"environment/{name}": world.lap() for name, world in self._worlds.items()}
        return {"generator": self._generator.lap(), **worlds}

    @contextmanager
    def _both(self, activity: str) -> Iterator[None]:
        with self._role.during(activity), self._generator.during(activity):
            yield

    def _world(self, name: str) -> ActivityClock:
        """The account of a world begins with the producer's: it was idle until it was entered."""
        if name not in self._worlds:
            self._worlds[name] = ActivityClock([COMPUTE, PLACE], NOTHING, self._clock, since=self._began)
        return self._worlds[name]
