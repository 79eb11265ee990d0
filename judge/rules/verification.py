"""Rules of the skill "verification"."""

from __future__ import annotations

from itertools import pairwise

from judge.rules.facts import TREATING, Facts, Step
from judge.rules.finding import NOT_APPLICABLE, Finding, positive, violation


def step_worked(facts: Facts) -> Finding:
    """Nothing is built upon a step that failed."""
    made_good: Step | None = None
    for failed, following in pairwise(facts.steps):
        if failed.valid or failed.command is None:
            continue
        if _presupposes(failed, following):
            return violation(following, "acted as if the failed step had worked")
        if following.valid and following.verb == failed.verb and following.command != failed.command:
            made_good = following
    return positive(f"turn {made_good.turn}: made the failed step succeed") if made_good else NOT_APPLICABLE


def _presupposes(failed: Step, following: Step) -> bool:
    match failed.verb:
        case "take":
            uses = following.verb == "move" or following.verb in TREATING
            return uses and following.thing == failed.thing and following.carried != failed.thing
        case "open":
            reaches_in = following.verb in ("take", "move") and following.place == failed.place
            return reaches_in and following.here_closed
        case "go":
            acts_there = following.verb in ("open", "take", "move") or following.verb in TREATING
            return acts_there and following.place == failed.place and following.here != failed.place
    return False
