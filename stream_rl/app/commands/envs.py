"""`envs list`, `envs play`, `envs check`, `envs serve`, `envs make` and `envs setup`."""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections.abc import Sequence
from typing import Any

import msgspec

from envs import registry
from stream_rl.errors import UsageError
from stream_rl.ports import Environment
from stream_rl.types import Split, Task


def run(arguments: argparse.Namespace) -> int:
    """Do what the action says."""
    if arguments.action == "list":
        return _list(arguments)
    if arguments.action == "setup":
        from stream_rl.app.commands.envs_setup import setup

        return setup(arguments)
    if arguments.action == "make":
        from stream_rl.app.commands.envs_make import make

        return make(arguments)
    options = _options(arguments.option)
    if arguments.action == "play":
        return _play(arguments, options)
    if arguments.action == "check":
        from stream_rl.app.commands.envs_check import check

        return check(arguments, options)
    from stream_rl.app.commands.envs_serve import serve

    return serve(arguments, options)


def _list(arguments: argparse.Namespace) -> int:
    worlds = registry.known()
    if arguments.json:
        sys.stdout.write(json.dumps(msgspec.to_builtins(worlds)) + "\n")
    else:
        width = max(len(world.name) for world in worlds)
        sys.stdout.writelines(f"{world.name:<{width}}  {world.description}\n" for world in worlds)
    return 0


def _play(arguments: argparse.Namespace, options: dict[str, Any]) -> int:
    if arguments.data:
        options = {**options, "data": arguments.data}
    environment = registry.create(arguments.name, options)
    split: Split = "held_out" if arguments.split == "held_out" else "train"
    try:
        return play(environment, Task(environment=arguments.name, split=split, index=arguments.index))
    finally:
        environment.close()


def play(environment: Environment, task: Task) -> int:
    """One episode: actions from stdin, Tab completes what the world would accept. Returns 0 when it was solved."""
    observation = environment.reset(task, 0)
    sys.stdout.write(f"{task.id}: type an action; Tab completes, an empty line or Ctrl-D ends\n\n{observation.text}\n")
    while True:
        _complete(_admissible(environment, observation.admissible))
        try:
            action = input("> ").strip()
        except EOFError:
            action = ""
        if not action:
            sys.stdout.write("\ngiven up\n")
            return 1
        result = environment.step(action)
        sys.stdout.write(result.text + "\n")
        if result.done:
            sys.stdout.write("solved\n" if result.success else "over, not solved\n")
            sys.stdout.writelines(f"  {detail}\n" for detail in result.details)
            return 0 if result.success else 1


def _admissible(environment: Environment, shown: Sequence[str]) -> list[str]:
    """What the world said with its observation, or what it says when asked, where it can be asked."""
    ask = getattr(environment, "admissible", None)
    return list(shown) or (list(ask()) if callable(ask) else [])


def _complete(actions: list[str]) -> None:
    """Offer whole actions, spaces included, to readline where there is one."""
    try:
        import readline
    except ImportError:
        return

    def matches(text: str, state: int) -> str | None:
        found = [action for action in actions if action.startswith(text)]
        return found[state] if state < len(found) else None

    readline.set_completer_delims("")
    readline.set_completer(matches)
    readline.parse_and_bind("tab: complete")


def _options(pairs: Sequence[str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, raw = pair.partition("=")
        if not equals:
            raise UsageError(f"--option {pair}: expected K=V")
        try:
            options[key] = tomllib.loads(f"v = {raw}")["v"]
        except tomllib.TOMLDecodeError:
            options[key] = raw
    return options
