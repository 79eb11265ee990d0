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
        """Success by environment and overall (their plain mean), over valid rollouts.

        `stderr` is that of the overall mean with rollouts of one task as one cluster. None where nothing was valid.
        """
        by_env: dict[str, dict[str, list[float]]] = {}
        valid = [t for t in self._results.values() if t.valid]
        for t in valid:
            by_env.setdefault(t.task.environment, {}).setdefault(t.task.id, []).append(float(t.success))
        success = {env: _mean([x for task in tasks.values() for x in task]) for env, tasks in sorted(by_env.items())}
        errors = [_clustered_error(list(tasks.values())) for tasks in by_env.values()]
        turns = [len(t.turns) for t in valid]
        num_turns = max(1, sum(turns))
        return {
            "version": self.version,
            "success": {"overall": _mean(list(success.values())) if success else None, "by_env": success},
            "stderr": math.sqrt(sum(e * e for e in errors)) / len(errors) if errors else None,
            "tasks": len(self._tasks),
            "rollouts": self.rollouts,
            "valid": len(valid),
            "invalid": len(self._results) - len(valid),
            "turns_mean": _mean([float(n) for n in turns]) if turns else None,
            "invalid_action_share": sum(not turn.valid for t in valid for turn in t.turns) / num_turns,
            "versions": sorted({span.version for t in valid for turn in t.turns for span in turn.spans}),
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
