"""Environments of the package `verifiers`: both generations of its interface, single-turn and multi-turn.

The environment runs as its package runs it, on the stage; the policy is the model it calls. Its own rubric scores the
episode. An environment module with a function `load_environment` is of the classic generation (verifiers 0.1.14 to
0.3), one that exports a `Taskset` of the current one (0.3 and later).
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from functools import cache
from typing import Any, Protocol

from envs.adapters.stage import Heard, Play, Program, stage
from stream_rl.errors import ConfigError
from stream_rl.types import Observation, Split, StepResult, Task


class Source(Protocol):
    """An environment of either generation, loaded once in a process."""

    def num_tasks(self, split: Split) -> int:
        """Tasks of the split, > 0."""
        ...

    def program(self, split: Split, index: int) -> Program:
        """One episode of one task, 0 <= index < num_tasks, as a program that calls a model."""
        ...


class Verifiers:
    """One environment of `verifiers`, by the id its package gives it.

    env: id or module of the environment, as for `vf-eval`
    args: its own arguments (classic: of `load_environment`; current: fields of its taskset's configuration)
    config: current generation only: further fields of the environment's configuration, such as a role's harness
    held_out: tasks kept for evaluation when the environment has no evaluation split: the first so many, at most
        half of all
    limit: tasks read from a source that never ends
    success: an episode whose reward reaches this much is solved

    The reward comes with the last step, so an episode that the trainer cuts at `generate.max_turns` has none: allow as
    many turns as the environment does. The seed changes nothing: the environment's own chance is its own.
    """

    def __init__(
        self,
        *,
        env: str,
        args: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        held_out: int = 100,
        limit: int = 10_000,
        success: float = 1.0,
    ) -> None:
        if held_out < 1 or limit <= held_out:
            raise ConfigError("environments.options", "verifiers: held_out must be at least 1, and limit above it.")
        self._source = _source(env, json.dumps(dict(args or {})), json.dumps(dict(config or {})), held_out, limit)
        self._success = success
        self._play: Play | None = None

    def num_tasks(self, split: Split) -> int:
        """Tasks of the split."""
        return self._source.num_tasks(split)

    def reset(self, task: Task, seed: int) -> Observation:
        """Begin an episode; indices past the last task begin at the first again. Raises `EnvironmentFailed`."""
        self.close()
        self._play = Play(stage())
        program = self._source.program(task.split, task.index % self._source.num_tasks(task.split))
        return Observation(text=self._play.begin(program).text)

    def step(self, action: str) -> StepResult:
        """Answer the environment. Raises `EnvironmentFailed`."""
        if self._play is None:
            self._play = Play(stage())
        return self._result(self._play.act(action))

    def close(self) -> None:
        """Cancel the episode if it still runs."""
        if self._play is not None:
            self._play.abandon()
            self._play = None

    def _result(self, heard: Heard) -> StepResult:
        if heard.outcome is None:
            return StepResult(text=heard.text, valid=heard.valid)
        reward = heard.outcome.reward
        return StepResult(
            text=heard.text,
            reward=reward,
            done=True,
            success=reward >= self._success,
            score=min(1.0, max(0.0, reward)),
            valid=heard.valid,
        )


@cache
def _source(env: str, args: str, config: str, held_out: int, limit: int) -> Source:
    """The environment, loaded: many episodes of one process share it. Raises `ConfigError`."""
    if importlib.util.find_spec("verifiers") is None:
        raise ConfigError(
            "environments.options",
            "the package verifiers is not installed here; install it, or serve the environment from a venv that has it "
            "(`stream-rl envs serve verifiers`) and use the world remote.",
        )
    from envs.adapters import verifiers_classic, verifiers_current

    arguments, fields = json.loads(args), json.loads(config)
    if verifiers_classic.is_classic(env):
        if fields:
            raise ConfigError("environments.options", f"config: {env} is of the classic generation and has only args.")
        return verifiers_classic.ClassicSource(env, arguments, held_out)
    return verifiers_current.CurrentSource(env, arguments, fields, held_out, limit)
