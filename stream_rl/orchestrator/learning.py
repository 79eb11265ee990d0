"""What the orchestrator knows of the learner, and who waited for whom. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stream_rl.orchestrator.flight import Flight


@dataclass(kw_only=True)
class LearnerState:
    """The connected learner and the round it is waiting for or working on."""

    peer: str
    version: int  # of its parameters: it wants, or works on, round `version`
    idle_since_s: float  # when it became ready for that round
    idle_since_eval_s: float  # seconds of evaluation so far, at that moment
    started: bool = False  # RoundStart of this round was sent
    delivered: list[str] = field(default_factory=list)  # groups of this round it was sent
    complete: bool = False  # all of them
    eval_overlap_s: float = 0.0  # evaluation that ran while it waited for this round
    judge_wait_s: float = 0.0  # part of its wait in which only verdicts were missing
    saving: bool = False  # a checkpoint was asked for


def judge_wait(candidates: Sequence[Flight], idle_since_s: float) -> float:
    """Seconds in which the learner was idle, every candidate was produced, and a verdict was still missing."""
    produced = max((f.produced_s for f in candidates), default=0.0)
    judged = max((f.judged_s for f in candidates), default=0.0)
    return max(0.0, judged - max(produced, idle_since_s))


def attribute_waits(learner: Mapping[str, float], *, judge_wait_s: float, eval_overlap_s: float) -> dict[str, Any]:
    """Split the learner's blocking time: evaluation is no wait for rollouts, nor is a missing verdict.

    `learner` holds seconds by part; the parts keep their sum. Evaluation goes to `other_s`.
    """
    out = dict(learner)
    wait = out.get("rollout_wait_s", 0.0)
    overlap = min(wait, eval_overlap_s)
    judge = min(wait - overlap, judge_wait_s)
    out["rollout_wait_s"] = wait - overlap - judge
    out["judge_wait_s"] = out.get("judge_wait_s", 0.0) + judge
    out["other_s"] = out.get("other_s", 0.0) + overlap
    return out
