"""Names of worlds, and how a name becomes an environment. A world's module is imported when it is first made."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

import msgspec

from stream_rl.errors import ConfigError
from stream_rl.ports import Environment

ENTRY_POINTS = "stream_rl.environments"  # a package of worlds registers `name = "module:Class"` in this group


class KnownWorld(msgspec.Struct, frozen=True, kw_only=True):
    """One world a configuration may name."""

    name: str  # as in `[[environments]] name`
    target: str  # "module:Class"
    description: str  # one line


_BUILT_IN = (
    KnownWorld(
        name="household",
        target="envs.household.world:Household",
        description="household tasks in one room, in ALFWorld's command language; pure Python",
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
    factory = _load(name, path)
    try:
        inspect.signature(factory).bind(**options)
    except TypeError as error:
        takes = [p for p in inspect.signature(factory).parameters if p not in ("args", "kwargs")]
        wrong = next((key for key in options if key not in takes), "")
        raise ConfigError(
            f"{path}.options",
            f"{name} does not take {dict(options)!r}: {error}; it takes {', '.join(takes) or 'no options'}.",
            nearest=_nearest(wrong, takes),
        ) from None
    try:
        return cast(Environment, factory(**options))
    except ConfigError:
        raise
    except Exception as error:  # code of the world's author: whatever fails here, the configuration cannot be used
        raise ConfigError(
            f"{path}.options", f"{name} cannot be made with {dict(options)!r}: {type(error).__name__}: {error}."
        ) from error


@cache
def _load(name: str, path: str) -> Any:
    """A world's factory. Kept: looking through all installed packages takes longer than a whole episode of some."""
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
        return getattr(importlib.import_module(module), attribute)
    except Exception as error:  # importing runs code of the world's author
        raise ConfigError(
            f"{path}.name", f"{name} ({target}) cannot be imported: {type(error).__name__}: {error}."
        ) from error


def _origin(point: EntryPoint) -> str:
    if point.dist is None:
        return point.value
    return point.dist.metadata["Summary"] or f"from the package {point.dist.name}"


def _nearest(name: str, names: Mapping[str, str] | list[str]) -> str | None:
    found = difflib.get_close_matches(name, list(names), n=1, cutoff=0.5)
    return found[0] if found else None
