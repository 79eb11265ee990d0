"""`verifiers` environments that export a `Taskset` (verifiers 0.3 and later)."""

from __future__ import annotations

import itertools
import sys
from typing import Any

from envs.adapters.endpoint import MODEL
from envs.adapters.stage import Outcome, Program, stage
from stream_rl.errors import ConfigError, EnvironmentFailed
from stream_rl.types import Split

_HARNESS = "stream_rl_chat"


class CurrentSource:
    """One taskset and the environment that plays it. Raises `ConfigError` when it cannot be made.

    Exactly one role may be played by the policy. Where the configuration leaves the role's harness open it is a plain
    chat, which has no tools and executes nothing; where it leaves the runtime open it is the local machine.
    """

    def __init__(self, env: str, arguments: dict[str, Any], fields: dict[str, Any], held_out: int, limit: int) -> None:
        import verifiers.v1 as vf

        from envs.adapters import verifiers_chat

        # Harnesses are found by module name, and only among top-level modules.
        sys.modules.setdefault(_HARNESS, verifiers_chat)
        config = vf.resolve_env_config({**fields, "taskset": {"id": env, **arguments}})
        roles = {name: role for name, role in config if isinstance(role, vf.AgentConfig) and role.client is None}
        if len(roles) != 1:
            raise ConfigError(
                "environments.options",
                f"config: {env} leaves to the policy, which plays exactly one role: {', '.join(roles) or 'none'}; "
                "give every other role a model and client of its own.",
            )
        ((self._role, role),) = roles.items()
        given = fields.get(self._role, {})
        if "harness" not in given and vf.default_harness_id(env) == "bash":
            role = role.model_copy(update={"harness": vf.HarnessConfig(id=_HARNESS)})
        if "runtime" not in given:
            role = role.model_copy(update={"runtime": vf.SubprocessConfig()})
        self._environment = vf.load_environment(config.model_copy(update={self._role: role}))
        taskset = self._environment.taskset
        tasks = list(taskset if taskset.bounded else itertools.islice(taskset, limit))
        if len(tasks) < 2:
            raise ConfigError("environments.options", f"{env} has {len(tasks)} tasks; it takes two to hold one out.")
        cut = min(held_out, len(tasks) // 2)
        self._tasks: dict[Split, list[Any]] = {"held_out": tasks[:cut], "train": tasks[cut:]}
        # Tool servers and the like live as long as the process.
        self._serving = stage().enter(self._environment.serving())
        self._serving.__enter__()

    def num_tasks(self, split: Split) -> int:
        """Tasks of the split."""
        return len(self._tasks[split])

    def program(self, split: Split, index: int) -> Program:
        """One episode as the package runs it, scored by the task and the environment."""
        task = self._tasks[split][index]

        async def run(address: str) -> Outcome:
            import verifiers.v1 as vf

            client = vf.EvalClientConfig(base_url=address, api_key_var="STREAM_RL_NO_KEY")
            episode = await self._environment.run_episode(task, vf.ModelContext(model=MODEL, client=client))
            errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
            if not episode.ok:
                raise EnvironmentFailed("; ".join(f"{e.type}: {e.message}" for e in errors) or "the episode failed")
            mine = [trace.reward for trace in episode.traces if trace.agent is None or trace.agent.name == self._role]
            if len(mine) != 1:
                raise EnvironmentFailed(f"the episode holds {len(mine)} runs of the role {self._role}; expected one")
            return Outcome(reward=float(mine[0]))

        return run
