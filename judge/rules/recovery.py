"""Rules of the skill "recovery"."""

from __future__ import annotations

from itertools import groupby, pairwise

from judge.rules.facts import Facts
from judge.rules.finding import NOT_APPLICABLE, Finding, decide, positive, violation

_UNDO_WITHIN = 3  # actions


def change_after_failure(facts: Facts) -> Finding:
    """The action after a failed one is another, and works."""
    after = [(a, b) for a, b in pairwise(facts.steps) if not a.valid]
    for failed, following in after:
        if following.action == failed.action:
            return violation(following, "repeated the action that had just failed")
    if after and all(following.valid for _, following in after):
        return positive(f"turn {after[0][1].turn}: did something else after the failure")
    return NOT_APPLICABLE


def break_loops(facts: Facts) -> Finding:
    """Having come back with nothing gained, it goes somewhere new instead of round again."""
    visited: list[str] = []  # places in order of arrival
    gains: list[bool] = []  # whether anything was gained between arriving there and the next arrival
    broken_at = None
    for step in facts.steps:
        if not step.did("go"):
            if gains:
                gains[-1] = gains[-1] or step.gain
            continue
        # A, B, A with nothing gained at B or A: going to B again is a loop, going somewhere new leaves it.
        if len(visited) >= 3 and visited[-1] == visited[-3] and not gains[-1] and not gains[-2]:
            if step.place == visited[-2]:
                return violation(step, "shuttled between two places")
            if step.place not in visited:
                broken_at = step
        visited.append(step.place)
        gains.append(step.gain)
    return positive(f"turn {broken_at.turn}: left the loop for a new place") if broken_at else NOT_APPLICABLE


def undo_mistakes(facts: Facts) -> Finding:
    """A thing taken by mistake is put down within three actions."""
    if facts.goal is None:
        return NOT_APPLICABLE
    mistakes = [(i, s) for i, s in enumerate(facts.steps) if s.did("take") and not facts.is_wanted(s.thing)]
    for i, step in mistakes:
        following = facts.steps[i + 1 : i + 1 + _UNDO_WITHIN]
        if not any(s.did("move") and s.thing == step.thing for s in following):
            return violation(step, "kept a thing the task does not want")
    return decide((), (step for _, step in mistakes), "", "soon put down what it took by mistake")


def quick_recovery(facts: Facts) -> Finding:
    """No more than two failures in a row."""
    short = None
    for valid, run in groupby(facts.steps, key=lambda s: s.valid):
        failures = [] if valid else list(run)
        if len(failures) >= 3:
            return violation(failures[2], "a third failure in a row")
        if len(failures) == 2 and failures[-1] is not facts.steps[-1]:
            short = failures[-1]
    return decide((), (short,) if short else (), "", "the streak ended after two failures")
