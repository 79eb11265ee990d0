"""Records as the orchestrator writes them, with round numbers."""

from __future__ import annotations

from typing import Any


def metrics_line(step: int, *, train_s: float, wall_s: float | None = None, **over: Any) -> dict[str, Any]:
    """An update of 4 s: 1 s waiting for rollouts, 2 s training, 0.5 s prox, 0.25 s publishing, 0.25 s other."""
    line = {
        "step": step,
        "version": step + 1,
        "train_s": train_s,
        "wall_s": train_s if wall_s is None else wall_s,
        "groups": {"candidate": 16, "selected": 16, "discarded": {}},
        "success": {"train": 0.25, "by_env": {"household": 0.25}},
        "reward_mean": 0.25,
        "lag": {"max": 1, "mean": 0.5, "histogram": {"0": 8, "1": 8}},
        "learner": {
            "rollout_wait_s": 1.0,
            "judge_wait_s": 0.0,
            "prox_s": 0.5,
            "teacher_s": 0.0,
            "train_s": 2.0,
            "publish_s": 0.25,
            "other_s": 0.25,
            "total_s": 4.0,
        },
        "learner_other": {"unpack_s": 0.1, "checkpoint_s": 0.0},
        "tokens": {"generated": 8000, "trained": 8000, "discarded": 0, "judge": 0, "teacher": 0},
        "loss": 0.01,
        "entropy": 0.9,
        "zero_variance": {"all_pass": 0.125, "all_fail": 0.25},
        "roles": {
            "producer-0": {"generate": 3.0, "environment": 0.5, "paused_for_sync": 0.25, "wait_for_lease": 0.25},
            "weights": {"pause_s": 0.25, "load_s": 0.125},
        },
        "alarms": [],
    }
    return line | over


def eval_record(version: int, *, train_s: float, success: float | None, stderr: float | None = 0.02) -> dict[str, Any]:
    return {
        "step": version,
        "version": version,
        "train_s": train_s,
        "wall_s": train_s,
        "success": {"overall": success, "by_env": {"household": success}},
        "stderr": stderr,
        "tasks": 200,
        "rollouts": 2,
        "valid": 400,
        "invalid": 0,
        "turns_mean": 14.25,
        "invalid_action_share": 0.125,
        "versions": [version],
    }


ALARM = {
    "type": "alarm",
    "at": 0.0,
    "name": "entropy",
    "step": 9,
    "value": 0.02,
    "limit": 0.05,
    "advice": "the policy is nearly deterministic: lower learner.lr",
}
