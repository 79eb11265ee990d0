"""Trained updates out of a ledger, one at a time, each with its rollouts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from stream_rl.app.replay.recording import RecordedGroup, Recording
from stream_rl.app.replay.timeline import Timeline
from stream_rl.config import Config
from stream_rl.orchestrator.bundling import Bundling
from stream_rl.orchestrator.flight import Flight

_NOT_SELECTED = "not_selected"


class Round(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One trained update, as the ledger holds it."""

    update: int  # k
    candidates: tuple[Flight, ...]  # what the selection chose from, in admission order
    selected: frozenset[str]  # of those, what it chose
    trained: tuple[Flight, ...]  # what the learner trained; one that stepped in for a refused one was no candidate
    in_line: tuple[Flight, ...]  # what its line of metrics calls candidates
    discarded: tuple[tuple[Flight, str], ...]  # what its line counts as discarded, with reasons
    deferred: int  # stragglers that made way since the line before
    notes: tuple[str, ...]  # what was out of the ordinary


def read_rounds(
    recording: Recording, recorded: Sequence[RecordedGroup], timeline: Timeline, config: Config
) -> Iterator[Round]:
    """Every trained update, in order. `recorded` are all groups, `config` the run's own. Raises `LedgerError`."""
    groups = {group.group_id: group for group in recorded}
    by_round: dict[int, list[RecordedGroup]] = {}
    for group in recorded:
        by_round.setdefault(group.row.round, []).append(group)
    for update, members in sorted(by_round.items()):
        if any(group.row.state == "trained" for group in members):
            given_up = [groups[name] for name in timeline.given_up.get(update, ())]
            yield _round(update, members, given_up, recording, timeline, config)


def _round(
    update: int,
    members: Sequence[RecordedGroup],
    given_up: Sequence[RecordedGroup],
    recording: Recording,
    timeline: Timeline,
    config: Config,
) -> Round:
    trained = [g for g in members if g.row.state == "trained"]
    left_out = [g for g in members if g.reason == _NOT_SELECTED]
    refused = [g for g in members if g.reason not in (None, _NOT_SELECTED) and g.group_id in timeline.selected_at]
    late = _late([*trained, *refused], timeline.selected_at) if config.algorithm.selection != "all" else frozenset()
    bundling, flights = Bundling(config), dict[str, Flight]()
    for group in sorted([*trained, *left_out, *refused], key=lambda g: g.row.position):
        flights[group.group_id] = recording.flight(group)
        flights[group.group_id].stamps = timeline.stamps[group.group_id]
        flights[group.group_id].alignment = bundling.choose(flights[group.group_id])
    candidates = [flight for name, flight in flights.items() if name not in late]
    # A refused group is in the line where nothing was rolled out in its place.
    in_line = [*trained, *left_out]
    if len(in_line) < config.groups.candidates:
        in_line += refused
    lost = [(recording.flight(group), str(group.reason)) for group in given_up]
    return Round(
        update=update,
        candidates=tuple(candidates),
        selected=frozenset(g.group_id for g in (*trained, *refused)) - late,
        trained=tuple(flights[g.group_id] for g in trained),
        in_line=tuple(flights[g.group_id] for g in in_line),
        discarded=(*((flights[g.group_id], str(g.reason)) for g in (*left_out, *refused)), *lost),
        deferred=timeline.deferred[update],
        notes=_notes(update, len(candidates), members, len(refused), len(lost), timeline, config),
    )


def _late(selected: Sequence[RecordedGroup], selected_at: Mapping[str, float]) -> frozenset[str]:
    """Groups selected after the round was: they stand for ones the learner refused. A selection is one moment."""
    moments = {group.group_id: selected_at.get(group.group_id) for group in selected}
    first = min((at for at in moments.values() if at is not None), default=None)
    return frozenset(name for name, at in moments.items() if at != first)


def _notes(
    update: int,
    candidates: int,
    members: Sequence[RecordedGroup],
    refused: int,
    given_up: int,
    timeline: Timeline,
    config: Config,
) -> tuple[str, ...]:
    """What may be why a round does not come out again."""
    notes = []
    if candidates != config.groups.candidates:
        notes.append(f"{candidates} candidates, the configuration says {config.groups.candidates}")
    if moved := sum(group.group_id in timeline.moved for group in members):
        notes.append(f"{moved} groups changed places in a window")
    if refused:
        notes.append(f"{refused} groups refused by the learner")
    if given_up:
        notes.append(f"{given_up} groups discarded before it was complete")
    if timeline.rewound is not None and update >= timeline.rewound:
        notes.append("trained again after a resume")
    return tuple(notes)
