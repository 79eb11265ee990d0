"""Service times with round numbers, and configurations for them."""

from __future__ import annotations

from typing import Any

from stream_rl.config import Config, from_dict
from stream_rl.simulate.profile import EnvironmentTimes, GeneratorTimes, JudgeTimes, LearnerTimes, Profile


def profile(
    *,
    turns: tuple[float, ...] = (10.0,),
    step_s: float = 0.0,
    worker_s: float = 0.0,
    turn_s: float = 0.1,
    rollout_s: float = 0.01,
    pause_s: float = 0.0,
    learner: LearnerTimes | None = None,
    answer_s: float = 0.0,
    **over: Any,
) -> Profile:
    """Episodes of ten turns; a training pass takes 0.01 s a rollout, one without gradient 0.004 s."""
    return Profile(
        generator=GeneratorTimes(turn_s=turn_s, rollout_s=rollout_s, pause_s=pause_s, cores=1.5),
        environments=(EnvironmentTimes(name="household", turns=turns, step_s=step_s, worker_s=worker_s),),
        learner=learner or LearnerTimes(forward_s=0.004, train_s=0.01),
        judge=JudgeTimes(answer_s=answer_s),
        **over,
    )


def grpo(**over: Any) -> Config:
    """Four groups of five rollouts an update, one mini-batch, no evaluation."""
    return _config({"groups": {"candidates": 4, "per_update": 4, "size": 5}}, over)


def rised(places: int = 8, **over: Any) -> Config:
    """Eight candidates, four trained, tags and a teacher."""
    tree: dict[str, Any] = {
        "groups": {"candidates": 8, "per_update": 4, "size": 5},
        "algorithm": {"selection": "rised", "distillation": "rised"},
        "judge": {"endpoints": [{"url": "http://127.0.0.1:1/v1", "concurrency": places}]},
    }
    return _config(tree, over)


def _config(tree: dict[str, Any], over: dict[str, Any]) -> Config:
    tree = {"updates": 10, "async_depth": 0, "eval": {"every": 0}, "stall_s": 1e6, **tree}
    for key, value in over.items():
        tree[key] = tree.get(key, {}) | value if isinstance(value, dict) else value
    return from_dict(tree)
