"""The ledger: every group's walk through the stream, written before it has effect. SQLite in WAL mode, one writer.

    leased -> produced -> judged -> candidate -> selected(k) -> trained(k)
                                 any of the first four, or a refused selected one -> discarded(reason)

A transition is one transaction. A transition that is not in the picture raises `LedgerError`: it is a bug, or the
ledger of another run. A discarded group owes its round a re-roll, but for candidates that a selection left out: the
debt is noted with the discard and settled with the re-roll's first lease, so there is never none, and never a second.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from stream_rl.errors import LedgerError
from stream_rl.link.codec import Decoder, pack, unpack
from stream_rl.orchestrator.group_row import COLUMNS, GroupRow, GroupState, from_columns, hint_text, to_columns
from stream_rl.orchestrator.ledger_schema import prepare
from stream_rl.orchestrator.offer import Offer
from stream_rl.types import Scores, Trajectory, Verdict, WeightsManifest

__all__ = ["GroupRow", "GroupState", "Ledger"]

_BEFORE: dict[str, tuple[str, ...]] = {
    "produced": ("leased",),
    "judged": ("produced",),
    "candidate": ("judged",),
    "selected": ("candidate",),
    "trained": ("selected",),
    "discarded": ("leased", "produced", "judged", "candidate", "selected"),
}


class Ledger:
    """Blocking calls; the service runs them in one worker thread. Not safe to share between threads at once."""

    def __init__(self, path: Path, run_id: str) -> None:
        """Open or create. Raises `LedgerError` when the file belongs to another run or is no ledger."""
        self._path = path
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            prepare(self._db)
        except sqlite3.DatabaseError as error:
            raise LedgerError(f"{path} cannot be used as a ledger: {error}") from None
        row = self._db.execute("SELECT value FROM meta WHERE key = 'run_id'").fetchone()
        if row is None:
            self._db.execute("INSERT INTO meta VALUES ('run_id', ?)", (run_id,))
        elif row[0] != run_id:
            raise LedgerError(f"{path} belongs to run {row[0]}, not {run_id}")

    def close(self) -> None:
        """Checkpoint the write-ahead log and close."""
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._db.close()

    # writing

    def lease(self, row: GroupRow, at: float) -> None:
        """A group is about to be leased for the first time.

        Raises `LedgerError` when it is the re-roll of a group that owes none: that one was rolled again already.
        """
        with self._transaction():
            if row.reroll_of is not None:
                done = self._db.execute(
                    "UPDATE groups SET owed = 0 WHERE group_id = ? AND state = 'discarded' AND owed = 1",
                    (row.reroll_of,),
                )
                if done.rowcount != 1:
                    raise LedgerError(
                        f"{row.group_id} cannot be rolled for {row.reroll_of}: it owes no re-roll ({self._path})"
                    )
            values = to_columns(row)
            self._db.execute(f"INSERT INTO groups ({COLUMNS}) VALUES ({','.join('?' * len(values))})", values)
            self._note(row.group_id, "leased", None, at)

    def lease_again(self, group_id: str, at: float) -> None:
        """Its producer is gone: what it sent is dropped, and the same lease is issued again."""
        with self._transaction():
            done = self._db.execute(
                "UPDATE groups SET attempts = attempts + 1 WHERE group_id = ? AND state = 'leased'", (group_id,)
            )
            if done.rowcount != 1:
                raise LedgerError(f"{group_id} cannot be leased again: it is not 'leased' in {self._path}")
            self._drop_records(group_id)
            self._note(group_id, "leased", "again", at)

    def move(self, rounds: Mapping[str, int], at: float) -> None:
        """Groups whose rollouts or verdicts are still out, and finished ones, take each other's rounds."""
        with self._transaction():
            for group_id, round_ in rounds.items():
                done = self._db.execute(
                    "UPDATE groups SET round = ? WHERE group_id = ?"
                    " AND state IN ('leased', 'produced', 'judged', 'candidate')",
                    (round_, group_id),
                )
                if done.rowcount != 1:
                    raise LedgerError(f"{group_id} cannot go to round {round_}: it is selected already ({self._path})")
                self._note(group_id, "moved", str(round_), at)

    def add_trajectory(self, trajectory: Trajectory, purpose: str) -> bool:
        """Keep one record. False: it was there already (a duplicate)."""
        done = self._db.execute(
            "INSERT OR IGNORE INTO trajectories VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                trajectory.id,
                trajectory.group_id,
                purpose,
                trajectory.success,
                trajectory.reward,
                trajectory.num_sampled_tokens,
                trajectory.error,
                pack(trajectory),
            ),
        )
        return done.rowcount == 1

    def add_verdict(self, verdict: Verdict) -> None:
        """Keep one verdict; the first of a trajectory stands."""
        self._db.execute("INSERT OR IGNORE INTO verdicts VALUES (?, ?)", (verdict.trajectory_id, pack(verdict)))

    def add_second_verdict(self, verdict: Verdict) -> None:
        """Keep a second opinion on a trajectory that has its verdict. Nothing but reports reads it."""
        self._db.execute("INSERT OR IGNORE INTO second_verdicts VALUES (?, ?)", (verdict.trajectory_id, pack(verdict)))

    def add_scores(self, scores: Scores) -> None:
        """Keep the scores of one trajectory; the first stand."""
        self._db.execute("INSERT OR IGNORE INTO scores VALUES (?, ?)", (scores.trajectory_id, pack(scores)))

    def produce(self, group_id: str, offer: Offer | None, at: float) -> None:
        """Every rollout of a group is in, and with them the bundles on offer to its teacher, if any were written."""
        with self._transaction():
            if offer is not None:
                self._db.execute("INSERT OR REPLACE INTO offers VALUES (?, ?)", (group_id, pack(offer)))
            self._advance(group_id, "produced", at, None)

    def advance(self, group_id: str, state: GroupState, at: float) -> None:
        """One step of the walk. Raises `LedgerError` for a step that is not in the picture."""
        with self._transaction():
            self._advance(group_id, state, at, None)

    def discard(self, group_id: str, reason: str, at: float) -> None:
        """A group will never be trained; from now on its round is owed a re-roll."""
        with self._transaction():
            self._advance(group_id, "discarded", at, reason)
            self._db.execute("UPDATE groups SET owed = 1 WHERE group_id = ?", (group_id,))

    def advance_all(self, group_id: str, states: Sequence[GroupState], at: float) -> None:
        """Several steps in one transaction."""
        with self._transaction():
            for state in states:
                self._advance(group_id, state, at, None)

    def put(self, key: str, text: str) -> None:
        """Keep a small piece of state under a name."""
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, text))

    def get(self, key: str) -> str | None:
        """A piece of state kept by `put`."""
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def select(self, update: int, hints: dict[str, tuple[str, ...] | None], dropped: Iterable[str], at: float) -> None:
        """Close a round in one transaction: `hints` maps each selected group to what its teacher is told.

        `dropped` are the candidates that were not selected.
        """
        with self._transaction():
            for group_id, hint in hints.items():
                self._advance(group_id, "selected", at, str(update))
                self._db.execute("UPDATE groups SET hint = ? WHERE group_id = ?", (hint_text(hint), group_id))
            for group_id in dropped:
                self._advance(group_id, "discarded", at, "not_selected")

    def train(self, update: int, group_ids: Sequence[str], at: float) -> None:
        """An update is done: its groups are trained, once."""
        with self._transaction():
            for group_id in group_ids:
                self._advance(group_id, "trained", at, str(update))

    def publish(self, manifest: WeightsManifest, *, live: bool) -> None:
        """Weights exist (`live=False`), or every generator samples from them (`live=True`)."""
        self._db.execute(
            "INSERT INTO versions VALUES (?, ?, ?) ON CONFLICT (version) DO UPDATE SET manifest = ?2, live = ?3",
            (manifest.version, msgspec.msgpack.encode(manifest), live),
        )

    def add_checkpoint(self, version: int, path: str) -> None:
        """A learner checkpoint is complete."""
        self._db.execute("INSERT OR REPLACE INTO checkpoints VALUES (?, ?)", (version, path))

    def rewind(self, version: int, at: float) -> int:
        """Resume from a checkpoint of `version`: rounds trained after it are selected again, unchanged.

        What the learner refused stays discarded: another group was trained in its place, or is owed. A round before
        `version` that is only `selected` was trained: the process ended between the checkpoint and the learner's
        report. Returns the number of groups put back.
        """
        with self._transaction():
            unreported = self._db.execute(
                "SELECT group_id, round FROM groups WHERE state = 'selected' AND round < ?", (version,)
            ).fetchall()
            for group_id, round_ in unreported:
                self._advance(group_id, "trained", at, str(round_))
            rows = self._db.execute(
                "SELECT group_id FROM groups WHERE round >= ? AND state = 'trained'", (version,)
            ).fetchall()
            for (group_id,) in rows:
                self._db.execute("UPDATE groups SET state = 'selected' WHERE group_id = ?", (group_id,))
                self._note(group_id, "selected", "rewound", at)
            self._db.execute("DELETE FROM versions WHERE version > ?", (version,))
            self._db.execute("DELETE FROM checkpoints WHERE version > ?", (version,))
        return len(rows)

    def drop_group(self, group_id: str) -> None:
        """Forget an evaluation group's records, before it is rolled out again."""
        with self._transaction():
            self._drop_records(group_id)

    # reading

    def groups(self, *, from_round: int = 0) -> list[GroupRow]:
        """Groups of rounds >= `from_round`, discarded ones left out, in admission order."""
        return self._rows("round >= ? AND state != 'discarded'", from_round)

    def unselected(self, *, from_round: int) -> list[GroupRow]:
        """Groups that the selection of a round >= `from_round` left out: they keep their place until it is live."""
        return self._rows("round >= ? AND state = 'discarded' AND reason = 'not_selected'", from_round)

    def owed(self) -> list[GroupRow]:
        """Discarded groups whose re-roll was not leased yet, in the order they were leased."""
        return self._rows("owed = ?", 1)

    def _rows(self, where: str, value: int) -> list[GroupRow]:
        rows = self._db.execute(f"SELECT {COLUMNS} FROM groups WHERE {where} ORDER BY rowid", (value,))
        return [from_columns(row) for row in rows]

    def next_position(self) -> int:
        """Tickets handed out so far. A re-roll takes none: it has the place of the group it stands for."""
        (last,) = self._db.execute("SELECT MAX(position) FROM groups").fetchone()
        return 0 if last is None else int(last) + 1

    def trajectories(self, group_id: str) -> list[Trajectory]:
        """Records of one group, by member."""
        decoder: Decoder[Trajectory] = Decoder(Trajectory)
        rows = self._db.execute("SELECT record FROM trajectories WHERE group_id = ?", (group_id,)).fetchall()
        return sorted((decoder.decode(unpack(blob)) for (blob,) in rows), key=lambda t: t.member)

    def verdicts(self, group_id: str) -> list[Verdict]:
        """Verdicts on one group's trajectories."""
        return self._verdicts("verdicts", group_id)

    def second_verdicts(self, group_id: str) -> list[Verdict]:
        """Second opinions on one group's trajectories."""
        return self._verdicts("second_verdicts", group_id)

    def _verdicts(self, table: str, group_id: str) -> list[Verdict]:
        decoder: Decoder[Verdict] = Decoder(Verdict)
        rows = self._db.execute(
            f"SELECT v.record FROM {table} v JOIN trajectories t USING (trajectory_id) WHERE t.group_id = ?",
            (group_id,),
        ).fetchall()
        return [decoder.decode(unpack(blob)) for (blob,) in rows]

    def scores(self, group_id: str) -> list[Scores]:
        """Scores of one group's trajectories."""
        decoder: Decoder[Scores] = Decoder(Scores)
        rows = self._db.execute(
            "SELECT s.record FROM scores s JOIN trajectories t USING (trajectory_id) WHERE t.group_id = ?", (group_id,)
        ).fetchall()
        return [decoder.decode(unpack(blob)) for (blob,) in rows]

    def offer(self, group_id: str) -> Offer | None:
        """The bundles on offer to one group's teacher."""
        row = self._db.execute("SELECT record FROM offers WHERE group_id = ?", (group_id,)).fetchone()
        decoder: Decoder[Offer] = Decoder(Offer)
        return None if row is None else decoder.decode(unpack(row[0]))

    def counts(self) -> dict[str, int]:
        """Groups by state; discarded ones by reason as "discarded:<reason>"."""
        rows = self._db.execute(
            "SELECT CASE WHEN state = 'discarded' THEN 'discarded:' || COALESCE(reason, '') ELSE state END, COUNT(*)"
            " FROM groups GROUP BY 1"
        )
        return {str(state): int(count) for state, count in rows}

    # inside

    def _transaction(self) -> _Transaction:
        return _Transaction(self._db)

    def _advance(self, group_id: str, state: GroupState, at: float, detail: str | None) -> None:
        before = _BEFORE.get(state, ())
        done = self._db.execute(
            f"UPDATE groups SET state = ?, reason = CASE WHEN ? = 'discarded' THEN ? ELSE reason END"
            f" WHERE group_id = ? AND state IN ({','.join('?' * len(before))})",
            (state, state, detail, group_id, *before),
        )
        if done.rowcount != 1:
            row = self._db.execute("SELECT state FROM groups WHERE group_id = ?", (group_id,)).fetchone()
            is_now = f"it is {row[0]!r}" if row else "the ledger does not know it"
            raise LedgerError(f"{group_id} cannot become {state!r}: {is_now} ({self._path})")
        self._note(group_id, state, detail, at)

    def _note(self, group_id: str, state: str, detail: str | None, at: float) -> None:
        self._db.execute(
            "INSERT INTO transitions (group_id, state, detail, at) VALUES (?, ?, ?, ?)", (group_id, state, detail, at)
        )

    def _drop_records(self, group_id: str) -> None:
        for table in ("verdicts", "second_verdicts", "scores"):
            self._db.execute(
                f"DELETE FROM {table} WHERE trajectory_id IN "
                "(SELECT trajectory_id FROM trajectories WHERE group_id = ?)",
                (group_id,),
            )
        self._db.execute("DELETE FROM offers WHERE group_id = ?", (group_id,))
        self._db.execute("DELETE FROM trajectories WHERE group_id = ?", (group_id,))


class _Transaction:
    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._db.execute("COMMIT" if kind is None else "ROLLBACK")
