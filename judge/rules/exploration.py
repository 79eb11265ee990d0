"""Rules of the skill "exploration"."""

from __future__ import annotations

from collections.abc import Iterator

from judge.rules.facts import Facts, Step
from judge.rules.finding import NOT_APPLICABLE, Finding, decide, positive, violation

_STALLED_TURNS = 4  # turns without a fresh place after which a search counts as given up


def searching_moves(facts: Facts) -> Iterator[Step]:
    """Moves with empty hands while no wanted thing is known anywhere."""
    return (s for s in facts.steps if s.did("go") and not s.carried and not s.wanted_at)


def new_places(facts: Facts) -> Finding:
    """Every search goes to a place not looked into before."""
    moves = list(searching_moves(facts))
    return decide(
        (s for s in moves if s.searched),
        (s for s in moves if not s.searched),
        "went back to a searched place",
        "went to a new place",
    )


def open_closed(facts: Facts) -> Finding:
    """Closed places are opened, not left."""
    return decide(
        (s for s in searching_moves(facts) if s.here_closed),
        (s for s in facts.steps if s.did("open")),
        "left a closed place unopened",
        "opened the place",
    )


def keep_searching(facts: Facts) -> Finding:
    """The search goes on through fresh places until the thing is found."""
    if facts.misses < 2:
        return NOT_APPLICABLE
    if facts.sighted:
        return positive(f"found after {facts.misses} empty places")
    tail = facts.steps[-_STALLED_TURNS:]
    fresh = any((s.did("go") and not s.searched) or s.did("open") for s in tail)
    if len(tail) == _STALLED_TURNS and facts.end.unsearched and not fresh:
        return violation(tail[0], "stopped looking into fresh places")
    return NOT_APPLICABLE


def prompt_start(facts: Facts) -> Finding:
    """Work starts at once. An ordinary start is no merit, so rules only see the slow one."""
    start = facts.steps[:2]
    if len(start) == 2 and not any(s.gain for s in start):
        return violation(start[1], "nothing new in the first two turns")
    return NOT_APPLICABLE
