"""The state of a run that the orchestrator's parts share. One actor changes it, one event at a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from stream_rl.config import Config
from stream_rl.messages import FromOrchestrator, ToOrchestrator
from stream_rl.observe.rundir import RunDirectory, append_json
from stream_rl.observe.states import StateClock
from stream_rl.orchestrator.accounts import Accounts, Devices
from stream_rl.orchestrator.fleet import Fleet
from stream_rl.orchestrator.flight import Flight
from stream_rl.orchestrator.gate import Gate
from stream_rl.orchestrator.learning import LearnerState
from stream_rl.orchestrator.outbox import Outboxes
from stream_rl.orchestrator.tally import Tally
from stream_rl.orchestrator.writer import LedgerWriter
from stream_rl.rubrics.vocabulary import Vocabulary
from stream_rl.types import WeightsManifest

Board = Callable[[dict[str, Any]], None]


@dataclass(kw_only=True)
class RunState:
    """Everything that more than one part reads. Times offsets carry over from an earlier process of the run."""

    config: Config
    run: RunDirectory
    ledger: LedgerWriter
    gate: Gate
    vocabulary: Vocabulary
    tags: bool  # whether groups wait for verdicts
    board: Board  # is told what people see
    outboxes: Outboxes[FromOrchestrator, ToOrchestrator]
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    fleet: Fleet = field(default_factory=Fleet)
    flights: dict[str, Flight] = field(default_factory=dict)  # groups that hold a permit
    learner: LearnerState | None = None
    manifest: WeightsManifest | None = None  # newest published weights
    tally: Tally = field(default_factory=Tally)
    accounts: Accounts = field(default_factory=lambda: Accounts(Devices()))
    paused: bool = False  # people asked for it: nothing new is leased for training
    stopping: str | None = None  # why, once the run is asked to stop
    finished: bool = False  # everybody was told that it is over
    evaluating: int | None = None  # version under evaluation
    checkpoint_version: int = -1  # newest checkpoint
    progress_s: float = 0.0  # when something last got done
    waits_for_judge: bool = False  # no endpoint answers, and verdicts are required
    wall_offset_s: float = 0.0
    train_offset_s: float = 0.0

    def __post_init__(self) -> None:
        self.phase = StateClock(["starting", "training", "evaluating", "paused", "stopping"], self.clock)
        self.progress_s = self.clock()

    @property
    def rubric_ids(self) -> tuple[str, ...]:
        """The axis of profiles; empty when nothing is tagged."""
        return self.vocabulary.ids if self.tags else ()

    @property
    def depth(self) -> int:
        """S in force: that of the configuration, until people change it."""
        return self.gate.depth

    @property
    def buffer(self) -> int:
        """Judged groups that may wait for selection."""
        return self.config.groups.buffer or self.gate.capacity

    @property
    def started(self) -> bool:
        """Learner and at least one producer are there."""
        return self.learner is not None and bool(self.fleet.ready)

    @property
    def made(self) -> int:
        """The newest version the learner has made: live, on its way, or still being written."""
        return self.gate.version if self.learner is None else self.learner.version

    @property
    def behind(self) -> bool:
        """The learner has made newer weights than are live."""
        return self.made > self.gate.version

    def progress(self) -> None:
        """Something got done; the stall watchdog starts again."""
        self.progress_s = self.clock()

    def quiet_s(self) -> float:
        """Seconds without progress; 0 while the run knowingly waits, for its judges or for people."""
        return 0.0 if self.waits_for_judge or self.paused else self.clock() - self.progress_s

    def round(self, round_: int) -> list[Flight]:
        """Groups of a round in admission order."""
        return [self.flights[group_id] for group_id in self.gate.members(round_)]

    def event(self, kind: str, **data: Any) -> None:
        """Something worth keeping and showing."""
        record = {"type": kind, "at": self.wall(), **data}
        append_json(self.run.events, record)
        self.board(record)

    def times(self) -> dict[str, float]:
        """Seconds of the run, and of its training phase (evaluations excluded), earlier processes included."""
        states = self.phase.snapshot()
        return {
            "wall_s": self.wall_offset_s + sum(states.values()),
            "train_s": self.train_offset_s + states["training"],
        }

    def set_phase(self) -> None:
        """Name what the run is doing now."""
        if self.stopping is not None:
            phase = "stopping"
        elif not self.started and self.phase.state == "starting":
            phase = "starting"
        elif self.evaluating is not None:
            phase = "evaluating"
        else:
            phase = "paused" if self.paused and not self.fleet.running else "training"
        if phase != self.phase.state:
            self.phase.enter(phase)
            self.board({"type": "phase", "phase": phase, **self.times()})
