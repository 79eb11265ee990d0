"""Rules of the skill "efficiency"."""

from __future__ import annotations

from judge.rules.facts import LOOKING, TREATING, Facts, Step, stops_match
from judge.rules.finding import NOT_APPLICABLE, Finding, decide, positive, violation

_DELAY_ALLOWED = 3  # extra actions


def direct_route(facts: Facts) -> Finding:
    """With the wanted thing in hand, every move leads to where it has to go next."""
    moves = [(s, stop) for s in facts.steps if s.did("go") and (stop := facts.next_stop(s))]
    strayed = [s for s, stop in moves if stops_match(stop, s.here) or not stops_match(stop, s.place)]
    return decide(strayed, (s for s, _ in moves), "moved away from the next stop", "went straight to the next stop")


def keep_open(facts: Facts) -> Finding:
    """Nothing is closed."""
    return decide(
        (s for s in facts.steps if s.did("close")),
        (s for s in facts.steps if s.did("open")),
        "closed a place",
        "left the opened place open",
    )


def no_idle_looks(facts: Facts) -> Finding:
    """No action only looks."""
    return decide(
        (s for s in facts.steps if s.verb in LOOKING),
        (s for s in facts.steps if s.command is not None),
        "only looked",
        "acted at every turn",
    )


def keep_results(facts: Facts) -> Finding:
    """What is fulfilled stays fulfilled, and more is added."""
    goal = facts.goal
    if goal is None or goal.kind == "light":
        return NOT_APPLICABLE
    added: Step | None = None
    for i, step in enumerate(facts.steps):
        after = facts.after(i)
        if after.delivered < step.delivered:
            return violation(step, "took apart what was fulfilled")
        if step.carried and step.carried == after.carried and step.treated and not after.treated:
            return violation(step, "undid the treatment")
        if after.delivered > step.delivered > 0:
            added = step
    return decide((), (added,) if added else (), "", "added to what was fulfilled")


def work_once(facts: Facts) -> Finding:
    """A treatment is not repeated on the same thing. Once is the ordinary case and earns nothing."""
    done: set[tuple[str, str]] = set()
    for step in facts.steps:
        if step.valid and step.verb in TREATING:
            if (step.verb, step.thing) in done:
                return violation(step, "repeated a treatment")
            done.add((step.verb, step.thing))
    return NOT_APPLICABLE


def prompt_finish(facts: Facts) -> Finding:
    """Once nothing but the last stage is left, it takes the fewest possible actions."""
    start = next((i for i, s in enumerate(facts.steps) if _last_stage(facts, s)), None)
    if start is None:
        return NOT_APPLICABLE
    first = facts.steps[start]
    finish = next((i for i in range(start, len(facts.steps)) if _finishes(facts, i)), None)
    arrived = stops_match(facts.next_stop(first), first.here)
    fewest = (0 if arrived else 1) + 1
    used = (finish if finish is not None else len(facts.steps) - 1) - start + 1
    if finish is not None:
        # A door on the way is opened of necessity, once.
        fewest += any(s.did("open") and s.place == facts.steps[finish].here for s in facts.steps[start:finish])
    if finish is not None and used <= fewest:
        return positive(f"turn {facts.steps[finish].turn}: finished with the fewest actions")
    if used > fewest + _DELAY_ALLOWED:
        return violation(first, f"{used - fewest} extra actions with everything in hand")
    return NOT_APPLICABLE


def _last_stage(facts: Facts, step: Step) -> bool:
    if facts.goal is None or not facts.is_wanted(step.carried) or not facts.next_stop(step):
        return False
    return step.treated and (facts.goal.kind != "two" or step.delivered == 1)


def _finishes(facts: Facts, index: int) -> bool:
    step = facts.steps[index]
    if facts.goal is not None and facts.goal.kind == "light":
        return step.did("use") and facts.is_wanted(step.carried)
    return step.did("move") and facts.after(index).delivered > step.delivered
