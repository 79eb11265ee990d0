"""One held-out evaluation: which rollouts are asked, which came back, and what they say."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any

from stream_rl.types import Task, Trajectory


class Evaluation:
    """Validation of one version: every task rolled out `rollouts` times, without guidance.

    While it runs no training group is leased, no weights are loaded and no round is delivered, so every token is of
    that version and the training clock stands still.
    """

    def __init__(self, version: int, tasks: Sequence[Task], rollouts: int) -> None:
        self.version = version
        self.rollouts = rollouts
        self._tasks = {f"eval-{version:05d}-{task.id}": task for task in tasks}
        self.waiting = deque(self._tasks)
        self.running: set[str] = set()
        self._results: dict[str, Trajectory] = {}

    @property
    def done(self) -> bool:
        """Nothing waits and nothing runs."""
        return not self.waiting and not self.running

    def task(self, group_id: str) -> Task:
        """The task of one evaluation group."""
        return self._tasks[group_id]

    def add(self, trajectory: Trajectory) -> None:
        """One rollout came back."""
        self._results[trajectory.id] = trajectory

    def lost(self, group_id: str) -> None:
        """Its producer is gone: roll it out again."""
        self.running.discard(group_id)
        for key in [k for k, t in self._results.items() if t.group_id == group_id]:
            del self._results[key]
        self.waiting.append(group_id)

    def summary(self) -> dict[str, Any]:
        """Success by environment and overall, over valid rollouts.

        `overall` is the plain mean of the environments, however many tasks each has; it is None when one of them has
        no valid rollout, since a mean of the others would be of another quantity. `stderr` is that of `overall`, with
        the rollouts of one task as one cluster.
        """
        names = sorted({task.environment for task in self._tasks.values()})
        by_env = {name: self._of(name) for name in names}
        rates = [facts["success"] for facts in by_env.values() if facts["valid"]]
        errors = [facts["stderr"] for facts in by_env.values() if facts["valid"]]
        whole = bool(names) and len(rates) == len(names)
        valid = [t for t in self._results.values() if t.valid]
        return {
            "version": self.version,
            "success": {
                "overall": _mean(rates) if whole else None,
                "by_env": {name: facts["success"] for name, facts in by_env.items() if facts["valid"]},
            },
            "stderr": math.sqrt(sum(e * e for e in errors)) / len(errors) if whole else None,
            "tasks": len(self._tasks),
            "rollouts": self.rollouts,
            "valid": len(valid),
            "invalid": len(self._results) - len(valid),
            **_play(valid),
            "by_env": by_env,
            "versions": sorted({span.version for t in valid for turn in t.turns for span in turn.spans}),
        }

    def _of(self, environment: str) -> dict[str, Any]:
        """One environment's part."""
        results = [t for t in self._results.values() if t.task.environment == environment]
        valid = [t for t in results if t.valid]
        clusters: dict[str, list[float]] = {}
        for t in valid:
            clusters.setdefault(t.task.id, []).append(float(t.success))
        return {
            "success": _mean([float(t.success) for t in valid]) if valid else None,
            "stderr": _clustered_error(list(clusters.values())) if valid else None,
            "tasks": sum(task.environment == environment for task in self._tasks.values()),
            "valid": len(valid),
            "invalid": len(results) - len(valid),
            "reward_mean": _mean([t.reward for t in valid]) if valid else None,
            **_play(valid),
        }


def _play(valid: Sequence[Trajectory]) -> dict[str, Any]:
    """How valid episodes went, whatever became of them."""
    turns = [turn for t in valid for turn in t.turns]
    return {
        "turns_mean": len(turns) / len(valid) if valid else None,
        "invalid_action_share": sum(not turn.valid for turn in turns) / max(1, len(turns)),
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _clustered_error(clusters: Sequence[Sequence[float]]) -> float:
    """Standard error of the mean over all values when values of a cluster are not independent."""
    total = sum(len(c) for c in clusters)
    if len(clusters) < 2:
        return 0.0
    mean = sum(sum(c) for c in clusters) / total
    squares = sum(sum(x - mean for x in c) ** 2 for c in clusters)
    return math.sqrt(squares * len(clusters) / (len(clusters) - 1)) / total
