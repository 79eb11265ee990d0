"""`envs make`: data for a world, from what its package ships."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from envs import registry
from stream_rl.errors import UsageError

MAKE = "make_games"


def make(arguments: argparse.Namespace) -> int:
    """Write the data. Raises `UsageError` for a world that makes none, `ConfigError`, `EnvironmentFailed`."""
    result = _maker(arguments.name)(arguments.folder, games=arguments.games, seed=arguments.seed)
    if arguments.json:
        sys.stdout.write(json.dumps(result) + "\n")
    else:
        width = max(map(len, result))
        sys.stdout.writelines(f"{key:<{width}}  {_told(value)}\n" for key, value in result.items())
    return 0


def _told(value: object) -> str:
    return ", ".join(f"{n} {name}" for name, n in value.items()) if isinstance(value, Mapping) else str(value)


def _maker(world: str) -> Callable[..., Mapping[str, Any]]:
    """The function of the module `make` beside the world's own."""
    known = registry.find(world)
    if known is None:
        registry.factory(world)  # says what is wrong with the name
    assert known is not None
    module = f"{known.target.partition(':')[0].rpartition('.')[0]}.make"
    try:
        found: Callable[..., Mapping[str, Any]] = getattr(importlib.import_module(module), MAKE)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise
        raise UsageError(f"{world} has nothing to make its data from: there is no module {module}") from None
    return found
