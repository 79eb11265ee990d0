"""From a run's ledger alone: what it decided, checked, and what a changed configuration would have decided.

consumes: the ledger, the run's configuration, its lines of metrics. waits for: nothing. produces: facts of every
trained update. unblocked by: nothing. One round's rollouts are in memory at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np

from stream_rl.app.replay.decisions import choose_again, hints, rubrics_of, turns_of
from stream_rl.app.replay.metrics_check import MetricsCheck, MetricsChecking, line_of
from stream_rl.app.replay.recording import Recording
from stream_rl.app.replay.rounds import Round, read_rounds
from stream_rl.app.replay.settings import Settings
from stream_rl.app.replay.side_by_side import RoundChange, SettingsCompared, SideBySide
from stream_rl.app.replay.timeline import read_timeline
from stream_rl.config import Config
from stream_rl.errors import UsageError
from stream_rl.observe.rundir import RunDirectory, read_json_lines


class OneRound(msgspec.Struct, frozen=True, kw_only=True):
    """One update: as recorded, and under the changed configuration."""

    update: int  # k
    candidates: int  # groups to choose from
    selected: int  # of those, chosen by the run
    added: tuple[str, ...]  # groups the run's own settings choose in this version, and did not then
    removed: tuple[str, ...]  # the other way round
    hints: tuple[str, ...]  # trained groups to which the run's own settings give another hint than is recorded
    notes: tuple[str, ...]  # what was out of the ordinary
    change: RoundChange | None  # None: nothing is changed

    @property
    def agrees(self) -> bool:
        """Whether selection and hints come out again."""
        return not (self.added or self.removed or self.hints)


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A rollout whose record contradicts itself."""

    update: int  # that trained its group
    trajectory: str  # its id
    problem: str  # what does not fit


class AdvantageFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Advantages of all trained turns by the run's own formula."""

    turns: int  # of valid members
    size: float | None  # mean |advantage|
    none_share: float | None  # turns with an advantage of 0


class RecomputeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the ledger says."""

    run: str  # its name
    settings: Settings  # then and now
    rounds: tuple[OneRound, ...]  # trained updates in order
    rollouts: int  # valid ones of trained groups, whose records were checked
    faults: tuple[Fault, ...]  # records that contradict themselves
    advantages: AdvantageFacts  # of the run's own formula
    metrics: MetricsCheck  # lines against the ledger
    resumed: tuple[int, ...]  # versions the run was resumed at
    total: SideBySide | None  # None: nothing is changed
    worlds: Mapping[str, SideBySide]  # environment -> the same; empty where nothing is changed

    @property
    def agrees(self) -> bool:
        """Whether everything the run recorded comes out again."""
        lines = self.metrics.agree == self.metrics.lines and not self.metrics.missing
        return lines and not self.faults and all(r.agrees for r in self.rounds)


def recompute(run_dir: RunDirectory, recording: Recording, settings: Settings) -> RecomputeFacts:
    """Every trained update of the run.

    Raises `UsageError` when nothing was trained yet, or the changes need answers of a judge that the ledger lacks;
    `LedgerError` for a file that cannot be read.
    """
    _refuse_without_answers(recording, settings)
    # In this order, so that of a run that goes on the later readings know all groups of the first.
    groups = recording.recorded_groups()
    timeline = read_timeline(recording.transitions())
    lines = _Lines(run_dir)
    resumed = _resumed(run_dir)
    rewound = [] if timeline.rewound is None else [timeline.rewound]
    checking = MetricsChecking(min([*resumed, *rewound], default=None))
    comparing = SettingsCompared(settings)
    own = _OwnAdvantages(settings.run)
    rounds: list[OneRound] = []
    faults: list[Fault] = []
    rollouts = 0
    for round_ in read_rounds(recording, groups, timeline, settings.run):
        faults += _faults(recording, round_)
        rollouts += sum(len(f.valid) for f in round_.trained)
        own.add(round_)
        line = line_of(
            update=round_.update,
            candidates=round_.in_line,
            trained=round_.trained,
            discarded=round_.discarded,
            deferred=round_.deferred,
            algorithm=settings.run.algorithm,
        )
        checking.add(round_.update, lines.at(round_.update), line)
        rounds.append(_checked(round_, settings.run, comparing.add(round_) if settings.changes else None))
    if not rounds:
        raise UsageError(f"{run_dir.root} has trained no update yet: its ledger holds nothing to recompute")
    return RecomputeFacts(
        run=run_dir.root.name,
        settings=settings,
        rounds=tuple(rounds),
        rollouts=rollouts,
        faults=tuple(faults),
        advantages=own.facts(),
        metrics=checking.result(),
        resumed=resumed,
        total=comparing.total.facts() if settings.changes else None,
        worlds={name: sums.facts() for name, sums in sorted(comparing.worlds.items())},
    )


def _checked(round_: Round, config: Config, change: RoundChange | None) -> OneRound:
    """The run's own settings, in this version, against what it did."""
    again = choose_again(config, round_.candidates, round_=round_.update)
    told = hints(config, round_.trained, rubrics_of(round_.candidates))
    return OneRound(
        update=round_.update,
        candidates=len(round_.candidates),
        selected=len(round_.selected),
        added=tuple(sorted(again - round_.selected)),
        removed=tuple(sorted(round_.selected - again)),
        hints=tuple(f.group_id for f in round_.trained if told[f.group_id] != f.hint),
        notes=round_.notes,
        change=change,
    )


class _Lines:
    """The run's lines of metrics, one in memory."""

    def __init__(self, run_dir: RunDirectory) -> None:
        self._left = read_json_lines(run_dir.metrics)
        self._line: Mapping[str, Any] | None = None

    def at(self, update: int) -> Mapping[str, Any] | None:
        """The line of an update; None: there is none. Updates are asked for in order."""
        while self._line is None or self._line["step"] < update:
            self._line = next(self._left, None)
            if self._line is None:
                return None
        return self._line if self._line["step"] == update else None


class _OwnAdvantages:
    """The run's own formula over all it trained."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._turns = self._none = 0
        self._size = 0.0

    def add(self, round_: Round) -> None:
        for flight in round_.trained:
            turns = turns_of(self._config, flight)
            self._turns += len(turns)
            self._none += int(np.count_nonzero(turns == 0))
            self._size += float(np.abs(turns).sum())

    def facts(self) -> AdvantageFacts:
        turns = self._turns
        return AdvantageFacts(
            turns=turns,
            size=self._size / turns if turns else None,
            none_share=self._none / turns if turns else None,
        )


def _faults(recording: Recording, round_: Round) -> Iterator[Fault]:
    """Rewards that are written down twice and differ, or are not the sum of their steps."""
    for flight in round_.trained:
        columns = recording.columns(flight.group_id)
        for t in flight.valid:
            reward, success = columns.get(t.id, (math.nan, False))
            steps = sum(turn.reward for turn in t.turns)
            problem = None
            if t.id not in columns:
                problem = "its record is kept under another id"
            elif (reward, success) != (t.reward, t.success):
                problem = (
                    f"its column says reward {reward:g}, success {success}; "
                    f"its record reward {t.reward:g}, success {t.success}"
                )
            elif not math.isclose(steps, t.reward, rel_tol=1e-9, abs_tol=1e-9):
                problem = f"reward {t.reward:g}, but the rewards of its steps add up to {steps:g}"
            if problem is not None:
                yield Fault(update=round_.update, trajectory=t.id, problem=problem)


def _resumed(run_dir: RunDirectory) -> tuple[int, ...]:
    """Versions at which a learner came up, but for the first: the run was resumed there."""
    ready = [event["version"] for event in read_json_lines(run_dir.events) if event.get("type") == "learner_ready"]
    return tuple(ready[1:])


def _refuse_without_answers(recording: Recording, settings: Settings) -> None:
    """Selections and hints that read what nobody asked a judge, or the policy, for."""
    run, changed = settings.run, settings.changed
    needs = (
        ("needs_tags", "verdicts", "reads tags, and no rollout of this run was tagged"),
        ("needs_bundles", "offers", "reads rubric bundles, and this run's policy wrote none"),
        ("needs_scores", "scores", "reads a verifier's scores, and this run asked for none"),
    )
    for need, table, problem in needs:
        if getattr(changed, need) and not getattr(run, need) and not recording.holds(table):
            said = ", ".join(f"{change.key} = {change.now}" for change in settings.changes)
            raise UsageError(f"{said}: this {problem}")
    if changed.learner_chooses and settings.changes_any("hints"):
        raise UsageError("bundle_score = 'within': the learner chose by log-likelihoods, which no ledger holds")
