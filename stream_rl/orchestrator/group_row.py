"""One group as the ledger keeps it, and the columns it is kept in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from stream_rl.types import Split, Task

GroupState = Literal["leased", "produced", "judged", "candidate", "selected", "trained", "discarded"]

COLUMNS = (
    "group_id, position, round, environment, split, task_index, seed, guidance, state, attempts, hint, admitted,"
    " reroll_of, reroll"
)


class GroupRow(msgspec.Struct, frozen=True, kw_only=True):
    """One group as the ledger knows it."""

    group_id: str  # unique in the run
    position: int  # place in the task order; a re-roll has that of the group it stands for
    round: int  # the round it belongs to
    task: Task  # what it attempts
    seed: int  # of its lease
    guidance: tuple[str, ...]  # rubric ids shown to its rollouts
    state: GroupState  # where it stands
    attempts: int  # leases issued for it
    hint: tuple[str, ...] | None = None  # rubric ids or written criteria for the teacher, once selected
    admitted: int  # the round it was admitted to; another one than `round` once it made way for a finished group
    reroll_of: str | None = None  # the discarded group whose place it fills; None: it came in the task order
    reroll: int = 0  # how many groups of this place of the task order were discarded before it


def from_columns(values: Sequence[Any]) -> GroupRow:
    """A row of `COLUMNS`."""
    (
        group_id, position, round_, environment, split, index, seed, guidance, state, attempts, hint, admitted,
        reroll_of, reroll,
    ) = values  # fmt: skip
    return GroupRow(
        group_id=group_id,
        position=position,
        round=round_,
        task=Task(environment=environment, split=_split(split), index=index),
        seed=seed,
        guidance=tuple(guidance.split()),
        state=state,
        attempts=attempts,
        hint=None if hint is None else msgspec.json.decode(hint, type=tuple[str, ...]),
        admitted=admitted,
        reroll_of=reroll_of,
        reroll=reroll,
    )


def to_columns(row: GroupRow) -> tuple[Any, ...]:
    """The values of `COLUMNS`."""
    return (
        row.group_id, row.position, row.round, row.task.environment, row.task.split, row.task.index, row.seed,
        " ".join(row.guidance), row.state, row.attempts, hint_text(row.hint), row.admitted, row.reroll_of, row.reroll,
    )  # fmt: skip


def hint_text(hint: tuple[str, ...] | None) -> str | None:
    """A hint as its column holds it."""
    return None if hint is None else msgspec.json.encode(hint).decode()


def _split(text: str) -> Split:
    return "held_out" if text == "held_out" else "train"
