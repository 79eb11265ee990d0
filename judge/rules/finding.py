"""What a rule says about an episode.

A rule awards a positive only where the episode gave an occasion to do otherwise. Behaviour that nearly every episode
shows says nothing about one, and as a hint it would crowd out what does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from judge.rules.facts import Facts, Step
from stream_rl.types import TagValue


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A tag and why."""

    value: TagValue  # never "abstained": what a rule cannot see does not apply
    reason: str  # names the deciding turn


Rule = Callable[[Facts], Finding]

NOT_APPLICABLE = Finding(value="not_applicable", reason="no occasion")


def positive(reason: str) -> Finding:
    """The behaviour was shown."""
    return Finding(value="positive", reason=reason)


def violation(step: Step, reason: str) -> Finding:
    """The behaviour was broken at this step."""
    return Finding(value="violation", reason=f"turn {step.turn}: {reason}")


def decide(broken: Iterable[Step], shown: Iterable[Step], why_broken: str, why_shown: str) -> Finding:
    """Violation if any step broke the rubric, else positive if any showed it, else not applicable."""
    for step in broken:
        return violation(step, why_broken)
    for step in shown:
        return positive(f"turn {step.turn}: {why_shown}")
    return NOT_APPLICABLE
