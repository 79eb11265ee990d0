"""Each group's walk through the stream as phases with a beginning and an end. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from stream_rl.observe.archive import ArchivedTransition

# What a group does after a step. "judged" and "candidate" are one: nothing happens between them.
_PHASES = {
    "leased": "rolled out",
    "produced": "judged",
    "judged": "waits for its round",
    "candidate": "waits for its round",
    "selected": "at the learner",
}
_ENDS = frozenset({"trained", "discarded"})


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """What a group did between two steps.

    >>> Phase(name="judged", start=10.0, stop=10.5, detail=None).name
    'judged'
    """

    name: str  # "rolled out", "judged", "waits for its round", "at the learner"
    start: float  # seconds since 1970
    stop: float  # seconds since 1970, >= start
    detail: str | None  # of the step that began it: the update it was selected for, "again", "rewound"


class Walk(msgspec.Struct, frozen=True, kw_only=True):
    """One group from its first lease to its end, without gaps between phases but for those of a resume."""

    group_id: str  # unique in the run
    phases: tuple[Phase, ...]  # in order
    end: str | None  # "trained" or "discarded"; None: the records stop before
    end_detail: str | None  # the update it was trained by, or the reason

    @property
    def start(self) -> float:
        """Of its first lease."""
        return self.phases[0].start

    @property
    def stop(self) -> float:
        """Of its last step, or of the records."""
        return self.phases[-1].stop


def walks(transitions: Iterable[ArchivedTransition], *, until: float | None = None) -> list[Walk]:
    """Walks by beginning. A phase that has no end yet lasts to `until`, or to the last step of any group.

    A group that is leased again after its producer left has two phases "rolled out"; one whose round was rewound at a
    resume is at the learner twice.
    """
    steps: dict[str, list[ArchivedTransition]] = {}
    last = until if until is not None else float("-inf")
    for step in transitions:
        last = max(last, step.at)
        if step.state in _PHASES or step.state in _ENDS:  # a "moved" group goes on with what it does
            steps.setdefault(step.group_id, []).append(step)
    found = [walk for group_id, own in steps.items() if (walk := _walk(group_id, own, last)) is not None]
    return sorted(found, key=lambda walk: (walk.start, walk.group_id))


def _walk(group_id: str, steps: list[ArchivedTransition], last: float) -> Walk | None:
    phases: list[Phase] = []
    for step, after in zip(steps, [*steps[1:], None], strict=True):
        name = _PHASES.get(step.state)
        if name is None:
            continue  # an end; what follows, after a rewind, begins a phase of its own
        start = max(step.at, phases[-1].stop) if phases else step.at  # the clock may have been set back
        stop = max(start, last if after is None else after.at)
        again = step.state == "leased" or step.detail == "rewound"
        if phases and phases[-1].name == name and not again:
            phases[-1] = msgspec.structs.replace(phases[-1], stop=stop)
        else:
            phases.append(Phase(name=name, start=start, stop=stop, detail=step.detail))
    if not phases:
        return None
    end = steps[-1] if steps[-1].state in _ENDS else None
    return Walk(
        group_id=group_id,
        phases=tuple(phases),
        end=end.state if end else None,
        end_detail=end.detail if end else None,
    )
