"""Rules of the skill "precision"."""

from __future__ import annotations

from judge.rules.commonsense import APPLIANCES
from judge.rules.facts import TREATING, Facts
from judge.rules.finding import NOT_APPLICABLE, Finding, decide, positive, violation
from judge.rules.language import kind_of


def valid_actions(facts: Facts) -> Finding:
    """Every action is accepted."""
    return decide(
        (s for s in facts.steps if not s.valid), facts.steps, "the action did nothing", "all actions were accepted"
    )


def command_form(facts: Facts) -> Finding:
    """Every action is a command of the language. With so small a language that is no merit: only failures count."""
    if facts.goal is None:
        return NOT_APPLICABLE
    malformed = (s for s in facts.steps if s.command is None and not s.valid)
    return decide(malformed, (), "not a command of this world", "")


def right_tool(facts: Facts) -> Finding:
    """Treatments are done with the appliance made for them."""
    goal = facts.goal
    if goal is None or goal.kind not in TREATING:
        return NOT_APPLICABLE
    tried = [s for s in facts.steps if s.verb in TREATING]
    return decide(
        (s for s in tried if kind_of(s.place) != APPLIANCES[s.verb]),
        (s for s in tried if s.valid and s.verb == goal.kind),
        "used another appliance",
        "used the fitting appliance",
    )


def right_destination(facts: Facts) -> Finding:
    """Wanted things are put at the target only."""
    if facts.goal is None or facts.goal.kind == "light":
        return NOT_APPLICABLE
    moves = [s for s in facts.steps if s.did("move") and facts.is_wanted(s.thing)]
    return decide(
        (s for s in moves if not facts.is_target(s.place)),
        moves,
        "put the wanted thing somewhere else",
        "put the wanted thing at the target",
    )


def exact_amount(facts: Facts) -> Finding:
    """Two means two different things, and both stay."""
    if facts.goal is None or facts.goal.kind != "two":
        return NOT_APPLICABLE
    for step in facts.steps:
        if step.did("take") and facts.is_wanted(step.thing) and facts.is_target(step.place):
            return violation(step, "took a delivered thing away again")
    return positive("two different things were delivered") if facts.end.delivered >= 2 else NOT_APPLICABLE
