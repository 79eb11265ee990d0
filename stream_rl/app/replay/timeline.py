"""When groups passed their phases, counted in versions the learner had made: from the ledger's transitions. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from stream_rl.observe.archive import ArchivedTransition
from stream_rl.orchestrator.staleness import Stamps

_NOT_SELECTED = "not_selected"


@dataclass(kw_only=True)
class Timeline:
    """What the order of a ledger's transitions says."""

    stamps: dict[str, Stamps] = field(default_factory=dict)  # group -> newest version made when it passed its phases
    given_up: dict[int, list[str]] = field(default_factory=dict)  # line -> groups discarded before any selection
    deferred: Counter[int] = field(default_factory=Counter)  # line -> stragglers that made way
    moved: set[str] = field(default_factory=set)  # groups whose round was exchanged
    selected_at: dict[str, float] = field(default_factory=dict)  # group -> when it was first selected, s since 1970
    rewound: int | None = None  # lowest round that was trained again after a resume; None: none was


def read_timeline(transitions: Iterable[ArchivedTransition]) -> Timeline:
    """Transitions in the order they were made. A line of metrics counts what happened since the line before it.

    A group that was selected, or left out by a selection, belongs to the line of its own round and is not in
    `given_up`. What a resume rewound is counted as if it had not happened.
    """
    found = Timeline()
    made = 0  # the newest version, and so the next line
    moves: Counter[int] = Counter()
    trained_by: dict[str, int] = {}
    for step in transitions:
        stamps = found.stamps.setdefault(step.group_id, Stamps())
        match step.state:
            case "leased":
                found.stamps[step.group_id] = Stamps(leased=made)
            case "produced":
                stamps.produced = made
            case "judged":
                stamps.judged = made
            case "selected" if step.detail == "rewound":
                made = min(made, trained_by.get(step.group_id, made))
                found.rewound = made if found.rewound is None else min(made, found.rewound)
                for line in [line for line in found.given_up if line >= made]:
                    del found.given_up[line]
                for line in [line for line in moves if line >= made]:
                    del moves[line]
            case "selected":
                found.selected_at.setdefault(step.group_id, step.at)
                stamps.selected = made
            case "trained":
                update = int(step.detail or made)
                trained_by[step.group_id] = update
                made = max(made, update + 1)
            case "discarded" if step.detail != _NOT_SELECTED and step.group_id not in found.selected_at:
                found.given_up.setdefault(made, []).append(step.group_id)
            case "moved":
                found.moved.add(step.group_id)
                moves[made] += 1
            case _:
                pass
    # Two groups take each other's place: one of the two is the straggler.
    found.deferred = Counter({line: count // 2 for line, count in moves.items()})
    return found
