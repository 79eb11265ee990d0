"""Plays a schedule: process after process of one run, from its first task to its last update."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import anyio
import msgspec

from stream_rl.observe.rundir import RunDirectory, keep_json_lines, read_json_lines
from stream_rl.orchestrator.ledger import Ledger
from tests.unit.orchestrator.virtual.checks import (
    check_counted,
    check_end,
    check_told,
    discarded_by_reason,
    num_rerolls,
    require,
)
from tests.unit.orchestrator.virtual.clock import run, running_loop
from tests.unit.orchestrator.virtual.history import History
from tests.unit.orchestrator.virtual.life import Lived, Process
from tests.unit.orchestrator.virtual.schedule import Life, Schedule, draw

_MEMORY = Path("/dev/shm")  # where there is one, the ledger waits for no disk
_MOST_LIVES = 30


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """What a schedule came to. Everything in it depends on the seed alone."""

    seed: int
    ends: tuple[str, ...]  # of each process of the orchestrator
    events: int  # it dealt with, and was looked at after
    leases: int  # sent to producers
    trained: int  # groups
    discarded: dict[str, int]  # groups by reason
    rerolled: int  # groups that stand for discarded ones
    max_lag: int  # of groups sent to the learner
    bound: int  # on it: S + W - 1, with the largest S that was in force; `max_lag` where that is less
    honest: bool  # every token was of the version its generator said
    virtual_s: float


class ScheduleFailed(AssertionError):
    """A property does not hold in this schedule."""


def play(schedule: Schedule | int) -> Played:
    """Play a schedule, or the one with this number. Raises `ScheduleFailed`, which says how to see it again."""
    schedule = draw(schedule) if isinstance(schedule, int) else schedule
    try:
        with tempfile.TemporaryDirectory(prefix="schedule-", dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
            return run(_Run(schedule, Path(folder)).play)
    except Exception as error:
        raise ScheduleFailed(
            f"schedule {schedule.seed}: {_in_words(error)}\n"
            f"see it again with: python -m benchmarks.schedules --seed {schedule.seed}"
        ) from error


class _Run:
    """One run over all its lives."""

    def __init__(self, schedule: Schedule, folder: Path) -> None:
        self._schedule = schedule
        self._run = RunDirectory.create(folder / "run")
        self._history = History()

    async def play(self) -> Played:
        """All lives, and what must hold at the end."""
        lives: list[Lived] = []
        planned = iter(self._schedule.lives)
        while not lives or lives[-1].end != "complete":
            require(len(lives) < _MOST_LIVES, f"the run needs too many processes: {[life.end for life in lives]}")
            lives.append(await self._live(next(planned, Life(end="complete")), len(lives)))
        ends = {life.end for life in lives}
        check_end(self._schedule, self._run, self._history, any_lost=bool(ends & {"killed", "learner_died"}))
        if "killed" not in ends:
            check_told(set().union(*(life.told for life in lives)), self._run.ledger)
        return Played(
            seed=self._schedule.seed,
            ends=tuple(life.end for life in lives),
            events=sum(life.events for life in lives),
            leases=len(self._history.leases),
            trained=sum(len(update.trained) for update in self._history.last_updates.values()),
            discarded=dict(sorted(discarded_by_reason(self._run.ledger).items())),
            rerolled=num_rerolls(self._run.ledger),
            max_lag=max(life.max_lag for life in lives),
            bound=max(life.bound for life in lives),
            honest=self._schedule.weather.honest,
            virtual_s=running_loop().time(),
        )

    async def _live(self, life: Life, number: int) -> Lived:
        """One process, started as `up --resume` starts it."""
        version = self._history.newest
        keep_json_lines(self._run.metrics, version, "step")
        keep_json_lines(self._run.eval, version + 1, "step")
        ledger = Ledger(self._run.ledger, self._run.run_id)
        ledger.rewind(version, anyio.current_time())
        discarded = discarded_by_reason(self._run.ledger)
        evaluated = max((line["step"] for line in read_json_lines(self._run.eval)), default=-1)
        lines = len(list(read_json_lines(self._run.metrics)))
        self._history.finished.clear()
        lived = await Process(self._schedule, life, number, self._run, self._history, ledger).live(evaluated)
        if lived.end not in ("complete", "stopped"):
            ledger.close()
        if lived.end != "killed":
            counted = Counter(lived.counted)
            for line in list(read_json_lines(self._run.metrics))[lines:]:
                counted.update(line["groups"]["discarded"])
            check_counted(counted, discarded_by_reason(self._run.ledger) - discarded)
        return lived


def _in_words(error: BaseException) -> str:
    """The first real exception of a tree of groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
