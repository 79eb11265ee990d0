"""A run's rounds as its ledger holds them, made into what the orchestrator decides on. Only reads."""

from __future__ import annotations

import msgspec

from stream_rl.link.codec import Decoder
from stream_rl.observe.archive import Archive
from stream_rl.orchestrator.flight import Flight
from stream_rl.orchestrator.ledger import GroupRow
from stream_rl.orchestrator.offer import Offer
from stream_rl.types import Scores, Task, Trajectory


class RecordedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """One training group, without its rollouts."""

    row: GroupRow  # as the run left it
    reason: str | None  # why it was discarded; None: it was not

    @property
    def group_id(self) -> str:
        """The group's id."""
        return self.row.group_id


class Recording(Archive):
    """The archive for those who decide again. Blocking calls, one thread at a time. A context manager."""

    def recorded_groups(self) -> list[RecordedGroup]:
        """Every training group, in admission order. Raises `LedgerError`."""
        # Ledgers of runs before rounds had a window lack the column: every group is in its first round there.
        columns = {name for _, name, *_ in self._rows("PRAGMA table_info(groups)")}
        admitted = "admitted" if "admitted" in columns else "round"
        return [
            RecordedGroup(
                row=GroupRow(
                    group_id=group_id,
                    position=position,
                    round=round_,
                    task=Task(environment=environment, split="train", index=index),
                    seed=seed,
                    guidance=tuple(guidance.split()),
                    state=state,
                    attempts=attempts,
                    hint=None if hint is None else self._hint(hint),
                    admitted=first,
                ),
                reason=reason,
            )
            for (
                group_id, position, round_, environment, index, seed, guidance, state, attempts, reason, hint, first
            ) in self._rows(
                "SELECT group_id, position, round, environment, task_index, seed, guidance, state, attempts, reason,"
                f" hint, {admitted} FROM groups ORDER BY position"
            )
        ]  # fmt: skip

    def flight(self, group: RecordedGroup) -> Flight:
        """The group with all its rollouts, valid and not, and everything that was said about them."""
        flight = Flight(row=group.row, stage="candidate", hint=group.row.hint)
        trajectories: Decoder[Trajectory] = Decoder(Trajectory)
        for (blob,) in self._rows(
            "SELECT record FROM trajectories WHERE group_id = ? AND purpose = 'train'", group.group_id
        ):
            trajectory = self._decoded(trajectories, blob)
            flight.trajectories[trajectory.id] = trajectory
        flight.verdicts = {verdict.trajectory_id: verdict for verdict in self.verdicts(group.group_id)}
        if "scores" in self._tables:
            scorings: Decoder[Scores] = Decoder(Scores)
            for (blob,) in self._rows(
                "SELECT s.record FROM scores s JOIN trajectories t USING (trajectory_id) WHERE t.group_id = ?",
                group.group_id,
            ):
                scores = self._decoded(scorings, blob)
                flight.scores[scores.trajectory_id] = scores
        if "offers" in self._tables:
            offers: Decoder[Offer] = Decoder(Offer)
            for (blob,) in self._rows("SELECT record FROM offers WHERE group_id = ?", group.group_id):
                flight.offer = self._decoded(offers, blob)
        return flight

    def columns(self, group_id: str) -> dict[str, tuple[float, bool]]:
        """Reward and success of a group's rollouts by trajectory id, as they stand beside the records."""
        rows = self._rows("SELECT trajectory_id, reward, success FROM trajectories WHERE group_id = ?", group_id)
        return {str(name): (float(reward), bool(success)) for name, reward, success in rows}

    def holds(self, what: str) -> bool:
        """Whether there is anything in the table `what`: "verdicts", "offers" or "scores"."""
        return what in self._tables and next(self._rows(f"SELECT 1 FROM {what} LIMIT 1"), None) is not None
