"""What a run's ledger holds, for those who only look: reports and replays. Never writes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from stream_rl.errors import LedgerError, LinkError
from stream_rl.link.codec import Decoder, unpack
from stream_rl.types import Scores, Split, Trajectory, Verdict

R = TypeVar("R")

_TASK_COLUMNS = "g.round, g.environment, g.split, g.task_index, g.seed, g.state, g.reason, g.hint"
_HINT = msgspec.json.Decoder(tuple[str, ...])


class ArchivedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """One training group, however it ended."""

    group_id: str  # unique in the run
    round: int  # the round it was admitted to
    environment: str  # world of its task
    candidate: bool  # it stood for selection
    selected: bool  # it was selected
    hint: tuple[str, ...] | None  # rubric ids or written criteria its teacher was told


class ArchivedTransition(msgspec.Struct, frozen=True, kw_only=True):
    """One step of one training group's walk, or the exchange of its round ("moved")."""

    group_id: str  # unique in the run
    state: str  # "leased", "produced", "judged", "candidate", "selected", "trained", "discarded" or "moved"
    detail: str | None  # the update it was selected for or trained by, a reason, "again", "rewound"
    at: float  # seconds since 1970


class ArchivedTask(msgspec.Struct, frozen=True, kw_only=True):
    """What a training group attempts, and where it stands."""

    round: int  # the round it belongs to
    environment: str  # world of its task
    split: Split  # always "train"
    index: int  # of its task
    seed: int  # of its lease
    state: str  # as in `ArchivedTransition`
    reason: str | None  # of a discarded one
    hint: tuple[str, ...] | None  # rubric ids or written criteria its teacher was told


class ArchivedRollout(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One rollout with all that was said about it."""

    purpose: str  # "train" or "eval"
    trajectory: Trajectory  # the record, of a valid or an invalid one
    num_bytes: int  # size of the record
    verdict: Verdict | None  # None: not judged
    scores: Scores | None  # None: no written criteria were scored
    group: ArchivedTask | None  # None: an evaluation's rollout, which belongs to no training group


class Archive:
    """Blocking calls, one thread at a time. A context manager. Every call raises `LedgerError` on a damaged file.

    The run may go on meanwhile; what it adds later may be seen or not.
    """

    def __init__(self, path: Path) -> None:
        """Open a ledger that exists."""
        self._path = path
        try:
            self._db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, check_same_thread=False)
            found = self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        except sqlite3.Error as error:
            raise LedgerError(f"{path} cannot be read as a ledger: {error}") from None
        self._tables = {str(name) for (name,) in found}

    def __enter__(self) -> Archive:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._db.close()

    def groups(self) -> list[ArchivedGroup]:
        """All training groups by round, within one in admission order."""
        passed = {"candidate": set[str](), "selected": set[str]()}
        for group_id, state in self._rows(
            "SELECT DISTINCT group_id, state FROM transitions WHERE state IN ('candidate', 'selected')"
        ):
            passed[state].add(group_id)
        return [
            ArchivedGroup(
                group_id=group_id,
                round=round_,
                environment=environment,
                candidate=group_id in passed["candidate"],
                selected=group_id in passed["selected"],
                hint=None if hint is None else self._hint(hint),
            )
            for group_id, round_, environment, hint in self._rows(
                "SELECT group_id, round, environment, hint FROM groups ORDER BY round, position"
            )
        ]

    def sizes(self) -> dict[str, int]:
        """Valid rollouts of each training group that has any."""
        rows = self._rows(
            "SELECT group_id, COUNT(*) FROM trajectories JOIN groups USING (group_id)"
            " WHERE purpose = 'train' AND error IS NULL GROUP BY group_id"
        )
        return {str(group_id): int(count) for group_id, count in rows}

    def trajectories(self, group_id: str) -> list[Trajectory]:
        """Valid rollouts of one training group, by member."""
        decoder: Decoder[Trajectory] = Decoder(Trajectory)
        rows = self._rows(
            "SELECT record FROM trajectories WHERE group_id = ? AND purpose = 'train' AND error IS NULL", group_id
        )
        return sorted((self._decoded(decoder, blob) for (blob,) in rows), key=lambda t: t.member)

    def verdicts(self, group_id: str) -> list[Verdict]:
        """Verdicts on one group's rollouts."""
        decoder: Decoder[Verdict] = Decoder(Verdict)
        rows = self._rows(
            "SELECT v.record FROM verdicts v JOIN trajectories t USING (trajectory_id) WHERE t.group_id = ?", group_id
        )
        return [self._decoded(decoder, blob) for (blob,) in rows]

    def all_verdicts(self) -> Iterator[tuple[str, Verdict]]:
        """Every verdict on a training rollout, with the rollout's environment."""
        decoder: Decoder[Verdict] = Decoder(Verdict)
        for environment, blob in self._rows(
            "SELECT g.environment, v.record FROM verdicts v JOIN trajectories t USING (trajectory_id)"
            " JOIN groups g USING (group_id)"
        ):
            yield environment, self._decoded(decoder, blob)

    def all_scores(self) -> Iterator[Scores]:
        """Every scoring of a training rollout by written criteria."""
        if "scores" not in self._tables:  # of a run before there were any
            return
        decoder: Decoder[Scores] = Decoder(Scores)
        for (blob,) in self._rows("SELECT record FROM scores"):
            yield self._decoded(decoder, blob)

    def judged_twice(self) -> Iterator[tuple[Verdict, Verdict]]:
        """Both verdicts on each rollout of the sample that was tagged a second time."""
        if "second_verdicts" not in self._tables:  # of a run before such samples were taken
            return
        decoder: Decoder[Verdict] = Decoder(Verdict)
        for first, second in self._rows(
            "SELECT v.record, s.record FROM verdicts v JOIN second_verdicts s USING (trajectory_id)"
        ):
            yield self._decoded(decoder, first), self._decoded(decoder, second)

    def transitions(self) -> Iterator[ArchivedTransition]:
        """Every step of every training group, in the order they were made."""
        rows = self._rows("SELECT group_id, state, detail, at FROM transitions ORDER BY id")
        for group_id, state, detail, at in rows:
            yield ArchivedTransition(group_id=group_id, state=state, detail=detail, at=at)

    def tasks(self) -> dict[str, ArchivedTask]:
        """What each training group attempts."""
        return {
            str(group_id): self._task(row)
            for group_id, *row in self._rows(f"SELECT group_id, {_TASK_COLUMNS} FROM groups g")
        }

    def rollouts(self, *, page: int = 64) -> Iterator[ArchivedRollout]:
        """Every rollout, in the order they ended. `page` of them are read at once, so memory is bounded.

        Between pages nothing is held open: the writer of a run that goes on is never in the way of its checkpoints.
        """
        scores = "s.record" if "scores" in self._tables else "NULL"
        join = "LEFT JOIN scores s USING (trajectory_id)" if "scores" in self._tables else ""
        trajectories: Decoder[Trajectory] = Decoder(Trajectory)
        verdicts: Decoder[Verdict] = Decoder(Verdict)
        scorings: Decoder[Scores] = Decoder(Scores)
        last = 0
        while rows := list(
            self._rows(
                f"SELECT t.rowid, t.purpose, t.record, v.record, {scores}, g.group_id, {_TASK_COLUMNS}"
                f" FROM trajectories t LEFT JOIN verdicts v USING (trajectory_id) {join}"
                " LEFT JOIN groups g ON g.group_id = t.group_id WHERE t.rowid > ? ORDER BY t.rowid LIMIT ?",
                last,
                page,
            )
        ):
            for last, purpose, record, verdict, scored, group_id, *row in rows:  # noqa: B007  `last` begins the next page
                yield ArchivedRollout(
                    purpose=purpose,
                    trajectory=self._decoded(trajectories, record),
                    num_bytes=len(record),
                    verdict=None if verdict is None else self._decoded(verdicts, verdict),
                    scores=None if scored is None else self._decoded(scorings, scored),
                    group=None if group_id is None else self._task(row),
                )

    def _task(self, row: Sequence[Any]) -> ArchivedTask:
        round_, environment, split, index, seed, state, reason, hint = row
        return ArchivedTask(
            round=round_,
            environment=environment,
            split=split,
            index=index,
            seed=seed,
            state=state,
            reason=reason,
            hint=None if hint is None else self._hint(hint),
        )

    def _rows(self, query: str, *values: object) -> Iterator[tuple[Any, ...]]:
        try:
            for row in self._db.execute(query, values):  # noqa: UP028  `yield from` would close the cursor, too late
                yield row
        except sqlite3.Error as error:
            raise LedgerError(f"{self._path} cannot be read as a ledger: {error}") from None

    def _hint(self, text: str) -> tuple[str, ...]:
        try:
            return _HINT.decode(text)
        except msgspec.DecodeError as error:
            raise LedgerError(f"{self._path} holds a hint that cannot be read ({error}): {text[:80]!r}") from None

    def _decoded(self, decoder: Decoder[R], blob: bytes) -> R:
        try:
            return decoder.decode(unpack(blob))
        except LinkError as error:
            raise LedgerError(f"{self._path} holds a record that cannot be read: {error}") from None
