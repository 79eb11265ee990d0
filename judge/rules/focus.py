"""Rules of the skill "focus"."""

from __future__ import annotations

from itertools import groupby

from judge.rules.facts import TREATING, Facts
from judge.rules.finding import NOT_APPLICABLE, Finding, decide, positive, violation

_LONG_EPISODE = 6  # turns
_STANDSTILL = 5  # turns in a row


def needed_objects(facts: Facts) -> Finding:
    """Only wanted things are taken."""
    if facts.goal is None:
        return NOT_APPLICABLE
    takes = [s for s in facts.steps if s.did("take")]
    return decide(
        (s for s in takes if not facts.is_wanted(s.thing)),
        takes,
        "took a thing the task does not want",
        "took a wanted thing",
    )


def asked_work(facts: Facts) -> Finding:
    """Only the requested treatment is performed."""
    goal = facts.goal
    if goal is None:
        return NOT_APPLICABLE
    done = [s for s in facts.steps if s.valid and (s.verb in TREATING or s.verb == "use")]
    asked = "use" if goal.kind == "light" else goal.kind
    return decide(
        (s for s in done if s.verb != asked), done, "did something nobody asked for", "did the requested operation only"
    )


def steady_progress(facts: Facts) -> Finding:
    """New information or a lasting change comes at least every second turn."""
    if facts.goal is None or len(facts.steps) < _LONG_EPISODE:
        return NOT_APPLICABLE
    longest = 0
    for gain, run in groupby(facts.steps, key=lambda s: s.gain):
        turns = list(run)
        if gain:
            continue
        if len(turns) >= _STANDSTILL:
            return violation(turns[_STANDSTILL - 1], f"{_STANDSTILL} turns without anything new")
        longest = max(longest, len(turns))
    return positive("something new at least every second turn") if longest <= 1 else NOT_APPLICABLE


def chosen_thing(facts: Facts) -> Finding:
    """One of several wanted things is dealt with to the end before another."""
    dropped = ""
    finished = None
    for i, step in enumerate(facts.steps):
        if step.did("move") and facts.is_wanted(step.thing):
            if facts.after(i).delivered > step.delivered:
                finished = step
            else:
                dropped = step.thing
        elif step.did("take") and facts.is_wanted(step.thing) and dropped:
            if step.thing != dropped:
                return violation(step, "turned to another thing halfway")
            dropped = ""
    if finished and facts.wanted_seen >= 2:
        return positive(f"turn {finished.turn}: dealt with the chosen thing to the end")
    return NOT_APPLICABLE
