"""What the page shows of a run's files: each answer reads what is new, and no more than a moment's worth of it."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from stream_rl.observe.progress import evaluations, rate
from stream_rl.observe.records import number, numbers, table
from stream_rl.observe.rundir import RunDirectory
from stream_rl.observe.words import sentence
from stream_rl.page.columns import Columns
from stream_rl.page.depths import DepthPoint, Depths
from stream_rl.page.episode import Episode, Pieces, episode
from stream_rl.page.follow import Follower
from stream_rl.page.rollouts import Page, Rollouts
from stream_rl.page.rubric_map import RubricCounts, RubricMap
from stream_rl.rubrics.vocabulary import Vocabulary
from stream_rl.types import Trajectory

Advantages = Callable[[Sequence[Trajectory]], list[list[float]]]  # a whole group to one list [turns] a member

_LINES = 1000  # read by one call: about a tenth of a second
_VERDICTS = 400  # counted by one call
_EVENTS = 200  # kept
_GROUPS = 40  # of one page


class Updates(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of updates. Points of another `epoch` than the one before replace everything that was shown."""

    epoch: str  # changes when updates that were given out no longer hold
    step: list[int]  # newest update of each point
    columns: dict[str, list[float | None]]  # name -> [points]
    updates: int  # updates the points stand for
    count: int  # updates in all, as far as they are read
    more: bool  # the file holds more than was read: ask again at once
    totals: dict[str, dict[str, float]]  # see `Columns.totals`
    roles: dict[str, dict[str, float]]  # role -> state -> seconds
    recent_roles: dict[str, dict[str, float]]  # the same, newest updates only


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """One held-out evaluation, with its 95 % interval."""

    version: int  # of the policy
    train_s: float  # training seconds until then
    success: float  # plain mean of the worlds
    low: float  # lower end
    high: float  # upper end
    by_env: dict[str, float]  # world -> success
    reward: dict[str, float]  # world -> mean reward


class ToldEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened."""

    at: float  # seconds since 1970
    type: str  # its kind
    text: str  # in words


class RunReader:
    """Blocking calls, one thread at a time. They raise `LedgerError` and `DamagedRecords` on damaged files."""

    def __init__(
        self,
        run: RunDirectory,
        vocabulary: Vocabulary,
        *,
        advantages: Advantages | None = None,
        pieces: Callable[[], Pieces | None] = lambda: None,
    ) -> None:
        """Nothing is read yet.

        advantages: how the run's algorithm credits the turns of a group; None: they are not shown
        pieces: called when the first rollout is looked at, since it loads a tokenizer
        """
        self._run = run
        self._advantages = advantages
        self._load_pieces = pieces
        self._pieces: Pieces | None = None
        self._metrics = Follower(run.metrics)
        self._evals = Follower(run.eval)
        self._events = Follower(run.events)
        self._columns = Columns()
        self._epoch = secrets.token_hex(4)
        self._generation = 0
        self._eval_records: dict[int, dict[str, Any]] = {}
        self._told: deque[ToldEvent] = deque(maxlen=_EVENTS)
        self._rollouts = Rollouts(run.ledger)
        self._counts = RubricCounts(self._rollouts, vocabulary)
        self._depths = Depths(run)

    def updates(self, *, since: int, points: int, epoch: str = "") -> Updates:
        """Updates after `since` as at most `points` points; all of them when `epoch` is not the reader's own."""
        more = self._follow_metrics()
        now = f"{self._epoch}-{self._generation}-{self._columns.replaced}"
        found = self._columns.slice(since=since if epoch == now else -1, points=points)
        return Updates(
            epoch=now,
            step=found.step,
            columns=found.columns,
            updates=found.updates,
            count=len(self._columns),
            more=more,
            totals=self._columns.totals(),
            roles=self._columns.roles(),
            recent_roles=self._columns.recent_roles(),
        )

    def evaluations(self) -> list[Evaluation]:
        """All of them by version; of one made twice the newer."""
        self._follow_evals()
        shown = []
        for found in evaluations(self._eval_records.values()):
            record, interval = self._eval_records[found.version], rate(found)
            worlds = table(record, "by_env")
            rewards = {name: number(worlds, name, "reward_mean") for name in worlds}
            shown.append(
                Evaluation(
                    version=found.version,
                    train_s=found.train_s,
                    success=found.success,
                    low=interval.low,
                    high=interval.high,
                    by_env=numbers(record, "success", "by_env"),
                    reward={name: value for name, value in rewards.items() if value is not None},
                )
            )
        return shown

    def events(self) -> list[ToldEvent]:
        """The newest two hundred, newest first."""
        more = True
        while more:
            records, more = self._events.read(_LINES)
            for record in records:
                at = number(record, "at") or 0.0
                self._told.appendleft(ToldEvent(at=at, type=str(record.get("type")), text=sentence(record)))
        return list(self._told)

    def last_line(self) -> Mapping[str, Any]:
        """The newest line of metrics.jsonl; empty before the first update."""
        while self._follow_metrics():
            pass
        return self._columns.last

    def left_behind(self) -> Mapping[str, Any]:
        """What `status` says of a run that nobody answers for."""
        last = self.last_line()
        self._follow_evals()
        return {
            "run": self._run.root.name,
            "phase": "not running",
            "version": last.get("version", 0),
            "wall_s": last.get("wall_s", 0.0),
            "train_s": last.get("train_s", 0.0),
            "success": last.get("success"),
            "lag": last.get("lag"),
            "eval": self._eval_records[max(self._eval_records)] if self._eval_records else None,
        }

    def depths(self) -> list[DepthPoint]:
        """Rollout wait of runs that differ in async depth alone."""
        return self._depths.read(self._columns.by_depth())

    def rubrics(self) -> RubricMap:
        """What the judge said, as far as it is counted."""
        return self._counts.read(_VERDICTS)

    def groups(self, *, held_out: bool, before: int | None, environment: str, state: str) -> Page:
        """One page of the browser, newest first."""
        if held_out:
            return self._rollouts.held_out(before=before, limit=_GROUPS)
        return self._rollouts.training(before=before, limit=_GROUPS, environment=environment, state=state)

    def episode(self, trajectory_id: str) -> Episode | None:
        """One rollout; None when the ledger does not hold it."""
        group_id = trajectory_id.rpartition("/")[0]
        group = self._rollouts.group(group_id)
        place = next((i for i, t in enumerate(group) if t.id == trajectory_id), None)
        if place is None:
            return None
        if self._pieces is None:
            self._pieces = self._load_pieces()
        standing = self._rollouts.standing(group_id)
        # Advantages compare the members of a whole group: while it is rolled out there are none.
        whole = standing is not None and standing.state != "leased"
        return episode(
            group[place],
            advantages=self._advantages(group)[place] if self._advantages and whole else None,
            verdict=self._rollouts.verdict(trajectory_id),
            hint=standing.hint if standing else (),
            pieces=self._pieces,
        )

    def _follow_metrics(self) -> bool:
        records, more = self._metrics.read(_LINES)
        if self._metrics.generation != self._generation:
            self._generation = self._metrics.generation
            self._columns = Columns()
        for record in records:
            self._columns.add(record)
        return more

    def _follow_evals(self) -> None:
        generation, more = self._evals.generation, True
        while more:
            records, more = self._evals.read(_LINES)
            if self._evals.generation != generation:
                generation = self._evals.generation
                self._eval_records.clear()
            for record in records:
                if (version := number(record, "step")) is not None:
                    self._eval_records[int(version)] = record
