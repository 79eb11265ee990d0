"""Any world, made slow: what the stream does with a world that takes its time, measured with one that takes none."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from envs.registry import create
from stream_rl.errors import ConfigError
from stream_rl.types import Observation, Split, StepResult, Task


class Delayed:
    """The world `world`, whose every answer takes `step_s` seconds longer.

    Meant for measurements: `name = "envs.delayed:Delayed"` with `options = {world = "household", step_s = 0.02}`.
    A worker answers one call at a time, so many episodes at once need several workers.

    Raises `ConfigError` for a delay below 0, and what `envs.registry.create` raises for the world and its `options`.
    """

    def __init__(self, *, world: str, step_s: float, options: Mapping[str, Any] | None = None) -> None:
        if step_s < 0:
            raise ConfigError("environments.options", f"step_s: {step_s:g} s is no delay; expected 0 or more.")
        self._step_s = step_s
        self._world = create(world, options or {})

    def num_tasks(self, split: Split) -> int | None:
        """As the world counts them; None where it does not."""
        count = getattr(self._world, "num_tasks", None)
        return count(split) if callable(count) else None

    def reset(self, task: Task, seed: int) -> Observation:
        """Begin an episode."""
        time.sleep(self._step_s)
        return self._world.reset(task, seed)

    def step(self, action: str) -> StepResult:
        """Act."""
        time.sleep(self._step_s)
        return self._world.step(action)

    def close(self) -> None:
        """Forget the episode."""
        self._world.close()
