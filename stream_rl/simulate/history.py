"""When a finished run's turns and updates happened, out of its ledger and metrics. Blocking, read only."""

from __future__ import annotations

import math
import sqlite3
import statistics
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from stream_rl.errors import LedgerError, UsageError
from stream_rl.observe.archive import Archive
from stream_rl.observe.rundir import RunDirectory, read_json_lines

Seconds = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
_WAITED = 0.1  # of an update: the learner did wait for rollouts
_MOST_GROUPS = 1_000  # the newest ones: a long run is read in seconds, too


class TurnTimes(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Every turn that was read, [turns] each."""

    generate_s: Seconds  # in the generator
    world_s: Seconds  # in the world
    rollouts: Counts  # that were played at that moment, by all producers
    beside_learner: Seconds  # share of the turn in which the learner computed


class RolloutTimes(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Every rollout that was read, [rollouts] each."""

    environment: tuple[str, ...]  # its world
    turns: Counts  # it made
    seconds: Seconds  # wall time
    world_s: Seconds  # of it in the world, the reset included
    sampled_tokens: int  # of all of them


class History(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What was read."""

    turns: TurnTimes  # of its newest groups
    rollouts: RolloutTimes  # of the same
    leased_s: Seconds  # [rollouts] when the rollout's group was leased
    handover_s: float  # from a round's last rollout to a learner that waited for it, median; 0.0: it never waited
    judge_s: float  # median time of an answer; 0.0: nobody was asked
    round_s: float  # from a round's first lease to its last rollout, mean

    @property
    def turn_tokens(self) -> float:
        """Sampled in a turn, mean."""
        return self.rollouts.sampled_tokens / float(self.rollouts.turns.sum())


def read_history(run: RunDirectory, lines: Sequence[Mapping[str, Any]]) -> History:
    """Turns, rollouts and answers. `lines` are the run's metrics.

    Raises `LedgerError` on a damaged ledger, `UsageError` on a run without rollouts.
    """
    if not run.ledger.is_file():
        raise UsageError(f"{run.root} has no ledger.sqlite, so nothing of its turns is known")
    leased, trained = _moments(run.ledger)
    busy = _busy(lines, trained)
    began: dict[int, float] = {}  # by round: its first lease
    ended: dict[int, float] = {}  # by round: its last rollout
    begin: list[float] = []
    end: list[float] = []
    generate: list[float] = []
    starts, stops, worlds, environments, counts, tokens = [], [], [], [], [], 0
    with Archive(run.ledger) as archive:
        groups = [group for group in archive.groups() if group.group_id in leased]
        for group in groups[-_MOST_GROUPS:]:
            for trajectory in archive.trajectories(group.group_id):
                if not trajectory.turns:
                    continue
                now = leased[group.group_id]
                starts.append(now)
                stops.append(now + trajectory.seconds)
                began[group.round] = min(began.get(group.round, now), now)
                ended[group.round] = max(ended.get(group.round, 0.0), now + trajectory.seconds)
                worlds.append(sum(turn.environment_s for turn in trajectory.turns))
                environments.append(group.environment)
                counts.append(len(trajectory.turns))
                tokens += trajectory.num_sampled_tokens
                for turn in trajectory.turns:
                    begin.append(now)
                    generate.append(turn.generate_s)
                    now += turn.generate_s + turn.environment_s
                    end.append(now)
        answers = [verdict.seconds for _, verdict in archive.all_verdicts() if not verdict.abstained]
        answers += [scores.seconds for scores in archive.all_scores() if not scores.abstained]
    if not counts:
        raise UsageError(f"{run.root} holds no valid training rollout yet, so nothing of its turns is known")
    first, last = np.array(begin), np.array(end)
    return History(
        turns=TurnTimes(
            generate_s=np.array(generate),
            world_s=last - first - np.array(generate),
            rollouts=_running(np.array(starts), np.array(stops), (first + last) / 2),
            beside_learner=_overlap(first, last, busy),
        ),
        rollouts=RolloutTimes(
            environment=tuple(environments),
            turns=np.array(counts),
            seconds=np.array(stops) - np.array(starts),
            world_s=np.array(worlds),
            sampled_tokens=tokens,
        ),
        leased_s=np.array(starts),
        handover_s=_handover(lines, busy, ended),
        judge_s=float(np.median(answers)) if answers else 0.0,
        round_s=statistics.fmean(end - began[round_] for round_, end in ended.items()),
    )


def read_lines(run: RunDirectory) -> list[dict[str, Any]]:
    """Its metrics. Raises `UsageError` when it has trained nothing."""
    lines = list(read_json_lines(run.metrics))
    if not lines:
        raise UsageError(f"{run.root} has not trained an update, so nothing of its learner is known")
    return lines


def _moments(ledger: Path) -> tuple[dict[str, float], dict[int, float]]:
    """Seconds since 1970: of each group's last lease, and of each update's report, by update."""
    try:
        with closing(sqlite3.connect(f"{ledger.resolve().as_uri()}?mode=ro", uri=True)) as db:
            leased = dict(
                db.execute("SELECT group_id, MAX(at) FROM transitions WHERE state = 'leased' GROUP BY group_id")
            )
            trained = dict(
                db.execute(
                    "SELECT round, MAX(at) FROM transitions JOIN groups USING (group_id)"
                    " WHERE transitions.state = 'trained' GROUP BY round"
                )
            )
    except sqlite3.Error as error:
        raise LedgerError(f"{ledger} cannot be read as a ledger: {error}") from None
    return leased, trained


def _busy(lines: Sequence[Mapping[str, Any]], trained: Mapping[int, float]) -> list[tuple[float, float]]:
    """When the learner computed: it reports at the end of an update how long each part took."""
    intervals = []
    for line in lines:
        end = trained.get(line["step"], math.nan)
        took = sum(line["learner"].get(f"{part}_s", 0.0) for part in ("prox", "teacher", "train"))
        took += line.get("learner_other", {}).get("unpack_s", 0.0)
        intervals.append((end - took, end))
    return intervals


def _handover(
    lines: Sequence[Mapping[str, Any]], busy: Sequence[tuple[float, float]], ended: Mapping[int, float]
) -> float:
    late = [
        begin - ended[line["step"]] - line["learner"]["judge_wait_s"]
        for line, (begin, _) in zip(lines, busy, strict=True)
        if line["step"] in ended and line["learner"]["rollout_wait_s"] > _WAITED * line["learner"]["total_s"]
    ]
    late = [seconds for seconds in late if seconds > 0]  # a missing report or a clock that was set
    return statistics.median(late) if late else 0.0


def _running(starts: Seconds, stops: Seconds, moments: Seconds) -> Counts:
    begun = np.searchsorted(np.sort(starts), moments)
    over = np.searchsorted(np.sort(stops), moments)
    running: Counts = np.maximum(1, begun - over)
    return running


def _overlap(first: Seconds, last: Seconds, intervals: Sequence[tuple[float, float]]) -> Seconds:
    shared = np.zeros(len(first))
    for begin, end in intervals:
        if math.isnan(end):
            continue  # its report is not in the ledger
        shared += np.clip(np.minimum(last, end) - np.maximum(first, begin), 0.0, None)
    share: Seconds = np.minimum(1.0, shared / np.maximum(last - first, 1e-9))
    return share
