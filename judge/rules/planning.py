"""Rules of the skill "planning"."""

from __future__ import annotations

from judge.rules.commonsense import likelihood
from judge.rules.exploration import searching_moves
from judge.rules.facts import TREATING, Facts, Step, stops_match
from judge.rules.finding import NOT_APPLICABLE, Finding, decide, positive, violation


def likely_places(facts: Facts) -> Finding:
    """Most choices among unsearched places fall on one of the likeliest."""
    if facts.goal is None:
        return NOT_APPLICABLE
    good: list[Step] = []
    poor: list[Step] = []
    for step in searching_moves(facts):
        # What has to be brought to a place is not expected to lie there already.
        others = [p for p in step.unsearched if not facts.is_target(p)]
        best = max((likelihood(facts.goal.thing, p) for p in others), default=0.0)
        if best > 0.0:
            (good if likelihood(facts.goal.thing, step.place) >= best else poor).append(step)
    if not good and not poor:
        return NOT_APPLICABLE
    if len(good) > len(poor):
        return positive(f"{len(good)} of {len(good) + len(poor)} choices were likely places")
    return violation(poor[0], f"{len(poor)} of {len(good) + len(poor)} choices were unlikely places")


def prepare_first(facts: Facts) -> Finding:
    """The treatment comes before the delivery."""
    if facts.goal is None or facts.goal.kind not in TREATING:
        return NOT_APPLICABLE
    moves = [s for s in facts.steps if s.did("move") and facts.is_wanted(s.thing) and facts.is_target(s.place)]
    return decide(
        (s for s in moves if not s.treated), moves, "delivered without the treatment", "delivered after the treatment"
    )


def complete_steps(facts: Facts) -> Finding:
    """What can be done at a place with the thing in hand is done before leaving.

    The last stage is the matter of efficiency.prompt_finish, so it earns no positive here.
    """
    ready = [s for s in facts.steps if (stop := facts.next_stop(s)) and stops_match(stop, s.here)]
    return decide(
        (s for s in ready if s.did("go")),
        (s for s in ready if s.valid and s.verb in TREATING),
        "left with the step undone",
        "did the step on the spot",
    )


def gather_inputs(facts: Facts) -> Finding:
    """An operation is started with its thing in hand."""
    if facts.goal is None:
        return NOT_APPLICABLE
    tried = [s for s in facts.steps if s.verb in TREATING]
    if facts.goal.kind == "light":
        tried += [s for s in facts.steps if s.verb == "use"]
        ready = [s for s in tried if facts.is_wanted(s.carried)]
    else:
        ready = [s for s in tried if s.carried and s.carried == s.thing]
    return decide(
        (s for s in tried if s not in ready),
        (s for s in ready if s.valid),
        "started without the thing in hand",
        "had the thing in hand",
    )
