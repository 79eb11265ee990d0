"""A line of metrics.jsonl made again from the ledger, and where it differs from what the run wrote. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from learner.row_facts import row_facts
from learner.rows import Row, build_rows
from stream_rl.config import Algorithm
from stream_rl.errors import LedgerError
from stream_rl.messages import SelectedGroup
from stream_rl.orchestrator.flight import Flight
from stream_rl.orchestrator.tally import Tally

# What a ledger determines. The rest of a line is seconds, the model's log-probabilities, or counts of what arrived
# between two lines, whose moment the ledger does not keep.
DETERMINED = (
    "step", "version", "groups", "success", "by_env", "reward_mean", "lag", "zero_variance", "turns_mean",
    "invalid_action_share", "cut_share", "rollouts.discarded", "orsd", "rows", "response", "advantage",
    "tokens.trained",
)  # fmt: skip
_NOT_IN_LEDGER = frozenset({"orsd.malformed_share"})  # counts answers as they come
# Kept in the orchestrator's memory until a round is trained, so lost with its process.
_IN_MEMORY = ("groups.discarded", "groups.deferred", "rollouts.discarded", "lag.by_origin")


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One number of one line."""

    update: int  # of the line
    key: str  # path in it
    recorded: Any  # in metrics.jsonl; None: nothing
    recomputed: Any  # from the ledger; None: nothing


class MetricsCheck(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of a run against its ledger."""

    lines: int  # compared
    agree: int  # exactly, in every number compared
    missing: tuple[int, ...]  # trained updates without a line
    keys: tuple[str, ...]  # compared, as `DETERMINED`
    absent: tuple[str, ...]  # determined, but in no line: an earlier version's run
    differences: tuple[Difference, ...]  # in order


def line_of(
    *,
    update: int,
    candidates: Sequence[Flight],
    trained: Sequence[Flight],
    discarded: Sequence[tuple[Flight, str]],
    deferred: int,
    algorithm: Algorithm,
) -> dict[str, Any]:
    """The numbers of update `update` that a ledger determines.

    `discarded` are groups that will never be trained, with the reason, as far as this line counts them. Raises
    `LedgerError` for records that no row can be made of.
    """
    tally = Tally()
    for flight, reason in discarded:
        tally.discard(flight, reason)
    tally.deferred = deferred
    return tally.line(
        step=update, candidates=candidates, trained=trained, learner=_learner_part(update, trained, algorithm)
    )


def _learner_part(update: int, trained: Sequence[Flight], algorithm: Algorithm) -> dict[str, Any]:
    """Rows, advantages and lengths of what the learner was sent."""
    rows = [row for flight in trained for row in _rows(update, flight, algorithm)]
    lengths = [t.num_sampled_tokens for flight in trained for t in flight.valid]
    return {
        **row_facts(rows),
        "response": {
            "tokens_mean": sum(lengths) / len(lengths) if lengths else None,
            "tokens_max": max(lengths, default=0),
        },
    }


def _rows(update: int, flight: Flight, algorithm: Algorithm) -> tuple[Row, ...]:
    group = SelectedGroup(
        update=update,
        group_id=flight.group_id,
        trajectories=tuple(sorted(flight.trajectories.values(), key=lambda t: t.member)),
        hint=None,  # what a teacher reads is in none of these numbers
    )
    try:
        return build_rows([group], version=update, algorithm=algorithm, renderer=None, max_model_len=0).rows
    except ValueError as error:
        raise LedgerError(f"group {flight.group_id}: no rows can be made of its records: {error}") from None


class MetricsChecking:
    """Takes lines in pairs and keeps what differs."""

    def __init__(self, resumed: int | None) -> None:
        """`resumed`: lowest version the run was resumed at; what is counted in memory is compared below it only."""
        self._resumed = resumed
        self._lines = self._agree = 0
        self._missing: list[int] = []
        self._seen: set[str] = set()
        self._absent: set[str] = set()
        self._differences: list[Difference] = []

    def add(self, update: int, recorded: Mapping[str, Any] | None, recomputed: Mapping[str, Any]) -> None:
        """One line; `recorded` None: the run has none."""
        if recorded is None:
            self._missing.append(update)
            return
        after_resume = self._resumed is not None and update >= self._resumed
        found = []
        for path in DETERMINED:
            ours = _at(recomputed, path)
            if ours is _NOTHING:
                continue
            theirs = _at(recorded, path)
            if theirs is _NOTHING:
                self._absent.add(path)
                continue
            self._seen.add(path)
            for key, was, now in _leaves(path, theirs, ours, self._absent):
                left_out = key in _NOT_IN_LEDGER or (after_resume and key.startswith(_IN_MEMORY))
                if was != now and not left_out:
                    found.append(Difference(update=update, key=key, recorded=was, recomputed=now))
        self._lines += 1
        self._agree += not found
        self._differences += found

    def result(self) -> MetricsCheck:
        """What has been found."""
        return MetricsCheck(
            lines=self._lines,
            agree=self._agree,
            missing=tuple(self._missing),
            keys=tuple(path for path in DETERMINED if path in self._seen),
            absent=tuple(sorted(self._absent)),
            differences=tuple(self._differences),
        )


_NOTHING = object()
# Tables whose keys are data (reasons, lags, worlds): one that is missing on one side is a difference.
_OPEN = ("groups.discarded", "rollouts.discarded", "success.by_env", "by_env", "lag.histogram", "lag.by_origin")


def _at(record: Mapping[str, Any], path: str) -> Any:
    value: Any = record
    for key in path.split("."):
        if not isinstance(value, Mapping) or key not in value:
            return _NOTHING
        value = value[key]
    return value


def _leaves(path: str, theirs: Any, ours: Any, absent: set[str]) -> Iterator[tuple[str, Any, Any]]:
    """Numbers at the same place on both sides. What a line of an earlier version lacks goes to `absent`."""
    if not (isinstance(theirs, Mapping) and isinstance(ours, Mapping)):
        yield path, theirs, ours
        return
    for key in dict.fromkeys((*ours, *theirs)):
        here = f"{path}.{key}"
        if key in ours and key in theirs:
            yield from _leaves(here, theirs[key], ours[key], absent)
        elif path.startswith(_OPEN):
            yield here, theirs.get(key), ours.get(key)
        elif key in ours:
            absent.add(here)
