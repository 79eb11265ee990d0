"""What the orchestrator knows of the learner, and who waited for whom. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stream_rl.orchestrator.flight import Flight

_NO_TRAINING = {"evaluating": "evaluation_s", "paused": "paused_s", "starting": "startup_s"}  # phase -> its name here


@dataclass(kw_only=True)
class LearnerState:
    """The connected learner and the round it is waiting for or working on."""

    peer: str
    version: int  # of its parameters: it wants, or works on, round `version`
    idle_since_s: float  # when it became ready for that round
    idle_since_phases: Mapping[str, float]  # seconds of the run by phase, at that moment
    started: bool = False  # RoundStart of this round was sent
    delivered: list[str] = field(default_factory=list)  # groups of this round it was sent
    complete: bool = False  # all of them
    no_training_s: Mapping[str, float] = field(default_factory=dict)  # part of its wait that was no training, by what
    judge_wait_s: float = 0.0  # part of its wait in which only verdicts were missing
    saving: bool = False  # a checkpoint was asked for


def judge_wait(candidates: Sequence[Flight], idle_since_s: float) -> float:
    """Seconds in which the learner was idle, every candidate was produced, and a verdict was still missing."""
    produced = max((f.produced_s for f in candidates), default=0.0)
    judged = max((f.judged_s for f in candidates), default=0.0)
    return max(0.0, judged - max(produced, idle_since_s))


def no_training(before: Mapping[str, float], now: Mapping[str, float]) -> dict[str, float]:
    """Seconds between two moments in which the run did something else than train. Both: its seconds by phase."""
    return {name: now.get(phase, 0.0) - before.get(phase, 0.0) for phase, name in _NO_TRAINING.items()}


def attribute_waits(
    learner: Mapping[str, float], *, judge_wait_s: float, no_training_s: Mapping[str, float]
) -> tuple[dict[str, Any], dict[str, float]]:
    """Split the learner's blocking time: a missing verdict is no wait for rollouts, nor is what was no training.

    `learner` holds seconds by part; the parts keep their sum. What was no training goes to `other_s`. Returns the
    parts, and what is inside `other_s` by name.
    """
    out: dict[str, Any] = dict(learner)
    wait = out.get("rollout_wait_s", 0.0)
    others = {}
    for name, seconds in no_training_s.items():
        others[name] = min(wait, max(0.0, seconds))
        wait -= others[name]
    judge = min(wait, judge_wait_s)
    out["rollout_wait_s"] = wait - judge
    out["judge_wait_s"] = out.get("judge_wait_s", 0.0) + judge
    out["other_s"] = out.get("other_s", 0.0) + sum(others.values())
    return out, others
