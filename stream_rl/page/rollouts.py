"""Rollouts in a run's ledger, for people who look through them. Never writes; reads no more than a screen needs."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from stream_rl.errors import LedgerError, LinkError
from stream_rl.link.codec import Decoder, unpack
from stream_rl.types import Trajectory, Verdict

R = TypeVar("R")
Purpose = Literal["train", "eval"]

_HELD_OUT_WINDOW = 4096  # records looked at for one page of held-out groups: no index knows them


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One rollout in a list."""

    id: str  # "<group id>/<member>"
    success: bool  # outcome
    reward: float  # sum of step rewards
    tokens: int  # sampled
    error: str | None  # why it is invalid; None for a valid one


class ListedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """One group in a list, newest first."""

    id: str  # group id
    cursor: int  # its place: ask for what lies before it
    environment: str  # world of its task
    round: int | None  # the round it was admitted to; None for a held-out group
    state: str  # where it stands; "held out" for one of an evaluation
    reason: str | None  # why it was discarded
    members: tuple[Member, ...]  # what has come back so far


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How a training group stands."""

    state: str  # of its walk
    hint: tuple[str, ...]  # told to its teacher: rubric ids or written criteria; empty for nothing


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Some groups, and where the next ones begin."""

    groups: tuple[ListedGroup, ...]  # newest first
    before: int | None  # ask for groups before this place; None: there are no more


class Rollouts:
    """Blocking calls, one thread at a time. A connection lives as long as one call, so a run that ends is let go.

    Every call raises `LedgerError` on a damaged file. Of a run without a ledger there is nothing to list.
    """

    def __init__(self, path: Path) -> None:
        """The file need not exist yet."""
        self._path = path

    def training(self, *, before: int | None, limit: int, environment: str = "", state: str = "") -> Page:
        """Training groups admitted before a place (None: the newest), of one world and in one state if asked."""
        wanted = [("rowid < ?", before), ("environment = ?", environment or None), ("state = ?", state or None)]
        conditions = [text for text, value in wanted if value is not None]
        rows = self._rows(
            "SELECT rowid, group_id, environment, round, state, reason FROM groups"
            f"{' WHERE ' if conditions else ''}{' AND '.join(conditions)} ORDER BY rowid DESC LIMIT ?",
            *(value for _, value in wanted if value is not None),
            limit,
        )
        members = self._members([group_id for _, group_id, *_ in rows])
        groups = tuple(
            ListedGroup(
                id=group_id,
                cursor=cursor,
                environment=world,
                round=round_,
                state=stands,
                reason=reason,
                members=members.get(group_id, ()),
            )
            for cursor, group_id, world, round_, stands, reason in rows
        )
        return Page(groups=groups, before=groups[-1].cursor if len(groups) == limit else None)

    def held_out(self, *, before: int | None, limit: int) -> Page:
        """Groups of evaluations whose records lie before a place (None: the newest)."""
        end = self._records() + 1 if before is None else before
        start = max(0, end - _HELD_OUT_WINDOW)
        first: dict[str, int] = {}
        for rowid, group_id in self._rows(
            "SELECT rowid, group_id FROM trajectories WHERE rowid >= ? AND rowid < ? AND purpose = 'eval'"
            " ORDER BY rowid DESC",
            start,
            end,
        ):
            if group_id not in first and len(first) == limit:
                start = max(start, rowid + 1)
                break
            first[group_id] = rowid
        members = self._members(list(first))
        groups = tuple(
            ListedGroup(
                id=group_id,
                cursor=cursor,
                environment=_environment(group_id),
                round=None,
                state="held out",
                reason=None,
                members=members.get(group_id, ()),
            )
            for group_id, cursor in first.items()
        )
        return Page(groups=groups, before=start if start > 1 else None)

    def group(self, group_id: str) -> list[Trajectory]:
        """Whole records of one group, by member, invalid ones included."""
        decoder: Decoder[Trajectory] = Decoder(Trajectory)
        rows = self._rows("SELECT record FROM trajectories WHERE group_id = ?", group_id)
        return sorted((self._decoded(decoder, blob) for (blob,) in rows), key=lambda t: t.member)

    def standing(self, group_id: str) -> Standing | None:
        """How a training group stands; None for another one."""
        for state, hint in self._rows("SELECT state, hint FROM groups WHERE group_id = ?", group_id):
            told = () if hint is None else msgspec.json.decode(hint, type=tuple[str, ...])
            return Standing(state=state, hint=told)
        return None

    def verdict(self, trajectory_id: str) -> Verdict | None:
        """What the judge said about one rollout."""
        decoder: Decoder[Verdict] = Decoder(Verdict)
        for (blob,) in self._rows("SELECT record FROM verdicts WHERE trajectory_id = ?", trajectory_id):
            return self._decoded(decoder, blob)
        return None

    def verdicts(self, *, after: int, limit: int) -> list[tuple[int, str, Verdict]]:
        """(place, environment, verdict) of verdicts on training rollouts that came after a place, oldest first."""
        decoder: Decoder[Verdict] = Decoder(Verdict)
        rows = self._rows(
            "SELECT v.rowid, g.environment, v.record FROM verdicts v JOIN trajectories t USING (trajectory_id)"
            " JOIN groups g USING (group_id) WHERE v.rowid > ? ORDER BY v.rowid LIMIT ?",
            after,
            limit,
        )
        return [(place, environment, self._decoded(decoder, blob)) for place, environment, blob in rows]

    def num_verdicts(self) -> int:
        """Place of the newest verdict."""
        return next((int(last or 0) for (last,) in self._rows("SELECT MAX(rowid) FROM verdicts")), 0)

    def _records(self) -> int:
        return next((int(last or 0) for (last,) in self._rows("SELECT MAX(rowid) FROM trajectories")), 0)

    def _members(self, group_ids: Sequence[str]) -> dict[str, tuple[Member, ...]]:
        """Members of some groups. The record of a rollout, which is large, is not read."""
        found: dict[str, list[Member]] = {}
        marks = ", ".join("?" * len(group_ids))
        for group_id, id_, success, reward, tokens, error in self._rows(
            "SELECT group_id, trajectory_id, success, reward, sampled_tokens, error FROM trajectories"
            f" WHERE group_id IN ({marks})",
            *group_ids,
        ):
            member = Member(id=id_, success=bool(success), reward=reward, tokens=tokens, error=error)
            found.setdefault(group_id, []).append(member)
        return {group_id: tuple(sorted(members, key=_number)) for group_id, members in found.items()}

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """All rows at once: a reader that stays in a transaction would keep the writer's log from shrinking."""
        if not self._path.exists():
            return []
        try:
            with closing(sqlite3.connect(f"{self._path.resolve().as_uri()}?mode=ro", uri=True)) as db:
                return db.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise LedgerError(f"{self._path} cannot be read as a ledger: {error}") from None

    def _decoded(self, decoder: Decoder[R], blob: bytes) -> R:
        try:
            return decoder.decode(unpack(blob))
        except LinkError as error:
            raise LedgerError(f"{self._path} holds a record that cannot be read: {error}") from None


def _number(member: Member) -> int:
    return int(member.id.rpartition("/")[2])


def _environment(group_id: str) -> str:
    """World of an evaluation's group, "eval-<version>-<environment>/<split>/<index>"."""
    return group_id.split("-", 2)[-1].split("/", 1)[0]
