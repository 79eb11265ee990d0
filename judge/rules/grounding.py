"""Rules of the skill "grounding"."""

from __future__ import annotations

from judge.rules.facts import TREATING, Facts, Step
from judge.rules.finding import NOT_APPLICABLE, Finding, decide, positive, violation

_HANDLING = TREATING | {"take", "move"}
_LOCAL = _HANDLING | {"open", "close"}


def known_things(facts: Facts) -> Finding:
    """No thing is handled whose kind was never shown."""
    if facts.goal is None:
        return NOT_APPLICABLE
    for step in facts.steps:
        if step.verb in _LOCAL and step.stranger == "kind":
            return violation(step, "named a kind of thing that was never shown")
    handled = {s.thing for s in facts.steps if s.valid and s.verb in _HANDLING}
    return positive(f"handled {len(handled)} things, all shown before") if len(handled) >= 2 else NOT_APPLICABLE


def notice_target(facts: Facts) -> Finding:
    """A wanted thing that comes into view with free hands is taken next."""
    seen: Step | None = None
    for step in facts.steps:
        sees = not step.carried and step.here in step.wanted_at and not step.here_closed
        if not sees or not step.valid:
            continue
        if step.did("take") and facts.is_wanted(step.thing):
            if len(step.visible) >= 2:  # where nothing else is in view, nothing can be overlooked
                seen = step
        elif step.verb in ("go", "take", "close"):
            return violation(step, "turned away from the wanted thing")
    return positive(f"turn {seen.turn}: took the wanted thing when it was in view") if seen else NOT_APPLICABLE


def exact_names(facts: Facts) -> Finding:
    """Numbers of things and places are those that were shown."""
    if facts.goal is None:
        return NOT_APPLICABLE
    takes = (s for s in facts.steps if s.did("take") and facts.is_wanted(s.thing))
    return decide(
        (s for s in facts.steps if s.stranger == "number"),
        takes if facts.wanted_seen >= 2 else (),
        "named a number that was never shown",
        "picked one of several by its exact name",
    )


def within_reach(facts: Facts) -> Finding:
    """Only things of the current place are handled."""
    if facts.goal is None:
        return NOT_APPLICABLE
    local = [s for s in facts.steps if s.verb in _LOCAL]
    done = {s.place for s in local if s.valid}
    return decide(
        (s for s in local if not s.valid and s.place != s.here),
        (s for s in local if s.valid and len(done) >= 4),
        "reached for another place",
        "handled things of its own place",
    )


def shown_state(facts: Facts) -> Finding:
    """A place shown closed is opened before its inside is used."""
    opened = {s.place for s in facts.steps if s.did("open")}
    using = [s for s in facts.steps if s.verb in ("take", "move") and s.place == s.here and s.here]
    return decide(
        (s for s in using if s.here_closed),
        (s for s in using if s.did("move") and s.place in opened),
        "used the inside of a place shown closed",
        "had opened the place before using it",
    )
