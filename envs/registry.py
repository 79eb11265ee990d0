"""Names of worlds, and how a name becomes an environment. A world's module is imported when it is first made."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

import msgspec

from stream_rl.causes import in_words
from stream_rl.errors import ConfigError
from stream_rl.ports import Environment

ENTRY_POINTS = "stream_rl.environments"  # a package of worlds registers `name = "module:Class"` in this group


class KnownWorld(msgspec.Struct, frozen=True, kw_only=True):
    """One world a configuration may name."""

    name: str  # as in `[[environments]] name`
    target: str  # "module:Class"
    description: str  # one line
    player: str = ""  # "module:Class" of a scripted player, see `envs.players`; empty: none


_REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

_BUILT_IN = (
    KnownWorld(
        name="household",
        target="envs.household.world:Household",
        description="household tasks in one room, in ALFWorld's command language; pure Python",
        player="envs.household.player:Player",
    ),
    KnownWorld(
        name="webshop",
        target="envs.webshop.world:WebShop",
        description="WebShop: an online shop, exactly as upstream's, over its data files (option data) or made up",
        player="envs.webshop.player:Player",
    ),
    KnownWorld(
        name="dbbench",
        target="envs.dbbench.world:DBBench",
        description="AgentBench's DBBench: SQL over SQLite or MySQL; upstream's files (option data) or generated tasks",
        player="envs.dbbench.player:Player",
    ),
    KnownWorld(
        name="appworld",
        target="envs.appworld.world:AppWorld",
        description="AppWorld: code over the apps of simulated people; upstream's package in a venv of its own",
        player="envs.appworld.player:Player",
    ),
    KnownWorld(
        name="alfworld",
        target="envs.alfworld.world:AlfWorld",
        description="ALFWorld's text games, by the upstream package over its data (option data or $ALFWORLD_DATA)",
    ),
    KnownWorld(
        name="verifiers",
        target="envs.adapters.verifiers:Verifiers",
        description="an environment of the package verifiers, by options env and args",
    ),
    KnownWorld(
        name="textworld",
        target="envs.adapters.textworld:TextWorld",
        description="TextWorld games (.json, .z8) of a folder, by option games",
    ),
    KnownWorld(
        name="remote",
        target="envs.adapters.remote:Remote",
        description="any world behind HTTP, by option url; `stream-rl envs serve` puts one there",
    ),
)


def known() -> list[KnownWorld]:
    """The worlds of this project, then those of installed packages. Imports none of them."""
    worlds = {world.name: world for world in _BUILT_IN}
    for point in entry_points(group=ENTRY_POINTS):
        if point.name not in worlds:
            worlds[point.name] = KnownWorld(name=point.name, target=point.value, description=_origin(point))
    return list(worlds.values())


def create(name: str, options: Mapping[str, Any], path: str = "environments") -> Environment:
    """An environment by its registered name, or by "module:Class"; `options` are the constructor's keywords.

    Raises `ConfigError` at `path`.name for a name that is unknown or cannot be imported, and at `path`.options for
    options the world does not take or cannot work with.
    """
    make = factory(name, path)
    try:
        inspect.signature(make).bind(**options)
    except TypeError as error:
        takes = [p.name for p in inspect.signature(make).parameters.values() if p.kind not in _REST]
        wrong = next((key for key in options if key not in takes), "")
        raise ConfigError(
            f"{path}.options",
            f"{name} does not take {dict(options)!r}: {error}; it takes {', '.join(takes) or 'no options'}.",
            nearest=_nearest(wrong, takes),
        ) from None
    try:
        world = make(**options)
    except ConfigError as error:
        raise ConfigError(_under(path, error.path), error.problem, nearest=error.nearest) from error
    except Exception as error:  # code of the world's author: whatever fails here, the configuration cannot be used
        raise ConfigError(
            f"{path}.options", f"{name} cannot be made with {dict(options)!r}: {in_words(error)}."
        ) from error
    missing = [method for method in ("reset", "step") if not callable(getattr(world, method, None))]
    if missing:
        raise ConfigError(f"{path}.name", f"{name} is no world: it has no method {' and no method '.join(missing)}.")
    return cast(Environment, world if callable(getattr(world, "close", None)) else _NothingToClose(world))


class _NothingToClose:
    """A world of two methods, which holds nothing that must be released."""

    def __init__(self, world: Any) -> None:
        for name in ("reset", "step", "num_tasks", "admissible", "prepare"):
            if (method := getattr(world, name, None)) is not None:
                setattr(self, name, method)

    def close(self) -> None:
        """Nothing to do."""


def find(name: str) -> KnownWorld | None:
    """The registered world of that name; a "module:Class" gets an entry of its own. None for a name nobody knows."""
    if ":" in name:
        return KnownWorld(name=name, target=name, description=name)
    return next((world for world in known() if world.name == name), None)


@cache
def factory(name: str, path: str = "environments") -> Callable[..., Any]:
    """What makes a world. Kept: looking through all installed packages takes longer than a whole episode of some.

    Raises `ConfigError` at `path`.name for a name that is unknown or cannot be imported.
    """
    names = {world.name: world.target for world in known()}
    target = name if ":" in name else names.get(name)
    if target is None:
        raise ConfigError(
            f"{path}.name",
            f"no world is called {name!r}; known are {', '.join(names)}, or module:Class.",
            nearest=_nearest(name, names),
        )
    module, _, attribute = target.partition(":")
    try:
        made = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # importing runs code of the world's author
        raise ConfigError(f"{path}.name", f"{name} ({target}) cannot be imported: {in_words(error)}.") from error
    return cast(Callable[..., Any], made)


def _under(path: str, told: str) -> str:
    """A world knows its options but not its place in the configuration: "environments.options" becomes `path`.options.

    >>> _under("environments.2", "environments.options")
    'environments.2.options'
    """
    return f"{path}{told.removeprefix('environments')}" if told.startswith("environments.options") else told


def _origin(point: EntryPoint) -> str:
    if point.dist is None:
        return point.value
    return point.dist.metadata["Summary"] or f"from the package {point.dist.name}"


def _nearest(name: str, names: Mapping[str, str] | list[str]) -> str | None:
    found = difflib.get_close_matches(name, list(names), n=1, cutoff=0.5)
    return found[0] if found else None
