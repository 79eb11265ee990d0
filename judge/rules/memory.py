"""Rules of the skill "memory"."""

from __future__ import annotations

from collections import Counter

from judge.rules.facts import TREATING, Facts, Step
from judge.rules.finding import NOT_APPLICABLE, Finding, decide, positive, violation


def recall_location(facts: Facts) -> Finding:
    """A thing seen earlier elsewhere is fetched from where it was seen."""
    moves = [s for s in facts.steps if s.did("go") and not s.carried and s.wanted_at and s.here not in s.wanted_at]
    return decide(
        (s for s in moves if s.place not in s.wanted_at),
        moves,
        "searched elsewhere although the thing had been seen",
        "went back to where the thing had been seen",
    )


def recall_failures(facts: Facts) -> Finding:
    """What failed in a situation is not tried again when the situation comes up later."""
    failed: dict[tuple[str, int], dict[str, int]] = {}  # situation -> action -> index of the failure
    learned: Step | None = None
    for i, step in enumerate(facts.steps):
        before = failed.get(step.situation, {})
        # The very next action is the matter of recovery.change_after_failure.
        if step.action in before and before[step.action] < i - 1:
            return violation(step, "tried again what had failed in the same situation")
        if step.valid and any(index < i - 1 for index in before.values()):
            learned = step
        if not step.valid:
            failed.setdefault(step.situation, {})[step.action] = i
    return decide((), (learned,) if learned else (), "", "did something else where it had failed before")


def recall_carried(facts: Facts) -> Finding:
    """What is in hand is used as such, also after it was carried from place to place."""
    moves = Counter(s.carried for s in facts.steps if s.did("go") and s.carried)
    using = [s for s in facts.steps if s.verb == "move" or s.verb in TREATING]
    mixed_up = [
        s
        for s in facts.steps
        if s.carried and not s.valid and (s.verb == "take" or (s in using and s.thing != s.carried))
    ]
    return decide(
        mixed_up,
        (s for s in using if s.valid and moves[s.thing] >= 2),
        "forgot what it carried",
        "used what it had carried there",
    )


def recall_opened(facts: Facts) -> Finding:
    """What was opened before is used without opening it again."""
    used: Step | None = None
    returned = ""  # opened place the agent came back to and has not acted at yet
    for step in facts.steps:
        if step.verb == "open" and not step.valid and step.opened:
            return violation(step, "opened a place that was open")
        if step.did("go"):
            returned = step.place if step.opened else ""
        elif step.valid and returned:
            if step.verb in ("take", "move") and step.place == returned:
                used = step
            returned = ""
    return positive(f"turn {used.turn}: used the open place at once") if used else NOT_APPLICABLE
