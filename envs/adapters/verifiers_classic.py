"""`verifiers` environments made by a function `load_environment` (verifiers 0.1.14 to 0.3)."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from typing import Any

from envs.adapters.endpoint import MODEL
from envs.adapters.stage import Outcome, Program
from stream_rl.errors import ConfigError, EnvironmentFailed
from stream_rl.types import Split


def is_classic(env: str) -> bool:
    """Whether the module of `env` has a `load_environment` or, named "module:Class", is an environment class."""
    if ":" in env:
        return True
    name = _module_name(env)
    try:
        return hasattr(importlib.import_module(name), "load_environment")
    except ModuleNotFoundError as error:
        if error.name != name.partition(".")[0]:
            raise
        return False  # the current generation has ids that are no modules


class ClassicSource:
    """One classic environment. Raises `ConfigError` when it cannot be loaded."""

    def __init__(self, env: str, arguments: dict[str, Any], held_out: int) -> None:
        self._environment = _load(env, arguments)
        rows = self._environment.get_dataset()
        if getattr(self._environment, "eval_dataset", None) is None:
            if len(rows) < 2:
                raise ConfigError("environments.options", f"{env} has {len(rows)} tasks; it takes two to hold one out.")
            cut = min(held_out, len(rows) // 2)
            self._rows = {"held_out": rows.select(range(cut)), "train": rows.select(range(cut, len(rows)))}
        else:
            self._rows = {"held_out": self._environment.get_eval_dataset(), "train": rows}

    def num_tasks(self, split: Split) -> int:
        """Rows of the split."""
        return len(self._rows[split])

    def program(self, split: Split, index: int) -> Program:
        """One rollout as the package runs it, scored by the environment's rubric."""
        row = dict(self._rows[split][index])

        async def run(address: str) -> Outcome:
            from verifiers.types import ClientConfig

            # A model call lasts as long as the policy thinks; who waits too long is the pool's to decide.
            client = ClientConfig(api_base_url=address, api_key_var="", timeout=86400.0, max_retries=0)
            state = await self._environment.run_rollout(row, client, MODEL, {})
            if state.get("error") is not None:
                raise EnvironmentFailed(f"the rollout failed: {state['error']}")
            return Outcome(reward=float(state["reward"]))

        return run


def _load(env: str, arguments: dict[str, Any]) -> Any:
    module, _, attribute = env.partition(":")
    load = getattr(importlib.import_module(_module_name(module)), attribute or "load_environment")
    try:
        inspect.signature(load).bind(**arguments)
    except TypeError as error:
        takes = ", ".join(inspect.signature(load).parameters)
        raise ConfigError("environments.options", f"args: {env} takes {takes}; {error}.") from None
    return load(**arguments)


def _module_name(env: str) -> str:
    """As the package finds an environment: the last part of "owner/name", with underscores."""
    return env.rpartition("/")[2].replace("-", "_")
