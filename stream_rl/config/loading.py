"""From TOML files and `--set` to a configuration that can run, or a `ConfigError` naming key, value, expectation."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from stream_rl.config.impossible import refuse_impossible
from stream_rl.config.schema import Config
from stream_rl.errors import ConfigError


def load(files: Sequence[Path], overrides: Sequence[str] = ()) -> Config:
    """Merge TOML `files` left to right, then `overrides` ("a.b=c"), and check the result.

    Raises `ConfigError` for a missing file, bad TOML, an unknown key, a wrong type or an impossible combination.
    """
    tree: dict[str, Any] = {}
    for file in files:
        tree = _merge(tree, _read(file))
    for override in overrides:
        tree = _merge(tree, _parse_override(override))
    return from_dict(tree)


def from_dict(tree: Mapping[str, Any]) -> Config:
    """Check a plain tree of values and turn it into a `Config`. Raises `ConfigError`."""
    _refuse_unknown(tree, Config, "")
    try:
        config = msgspec.convert(tree, Config)
    except msgspec.ValidationError as error:
        raise _explain(error, tree) from None
    refuse_impossible(config)
    return config


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        near = _nearest(file.name, [p.name for p in file.parent.glob("*.toml")] if file.parent.is_dir() else [])
        raise ConfigError(str(file), "no such configuration file.", nearest=near) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(str(file), f"not valid TOML: {error}.") from None
    except OSError as error:
        raise ConfigError(str(file), f"cannot be read: {error.strerror}.") from None


def _parse_override(text: str) -> dict[str, Any]:
    key, equals, raw = text.partition("=")
    key = key.strip()
    if not equals or not key:
        raise ConfigError(f"--set {text}", "expected KEY=VALUE, for example --set learner.lr=1e-4.")
    try:
        value: Any = tomllib.loads(f"v = {raw.strip()}")["v"]
    except tomllib.TOMLDecodeError:
        value = raw.strip()
    for part in reversed(key.split(".")):
        value = {part: value}
    return value  # type: ignore[no-any-return]


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(base)
    for key, value in over.items():
        old = out.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            out[key] = _merge(old, value)
        elif isinstance(value, Mapping) and isinstance(old, list) and all(k.isdigit() for k in value):
            out[key] = _merge_items(old, value, key)
        else:
            out[key] = value
    return out


def _merge_items(old: list[Any], over: Mapping[str, Any], key: str) -> list[Any]:
    """`environments.0.workers=2` changes one entry of an array of tables."""
    items = list(old)
    for number, value in over.items():
        i = int(number)
        if i >= len(items):
            raise ConfigError(f"{key}.{number}", f"there are only {len(items)} entries.")
        items[i] = _merge(items[i], value) if isinstance(value, Mapping) else value
    return items


def _refuse_unknown(tree: object, kind: Any, path: str) -> None:
    """Walk values and struct types together and name the first key that no field has."""
    if get_origin(kind) is tuple and isinstance(tree, list | tuple):
        for i, item in enumerate(tree):
            _refuse_unknown(item, get_args(kind)[0], f"{path}.{i}")
        return
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)) or not isinstance(tree, Mapping):
        return
    fields = get_type_hints(kind)
    for key, value in tree.items():
        full = f"{path}.{key}" if path else str(key)
        if key not in fields:
            near = _nearest(str(key), fields)
            near = f"{path}.{near}" if near and path else near
            table = f"[{path}]" if path else "the top level"
            raise ConfigError(
                full, f"unknown key in {table}; known keys are {', '.join(sorted(fields))}.", nearest=near
            )
        _refuse_unknown(value, fields[key], full)


def _explain(error: msgspec.ValidationError, tree: Mapping[str, Any]) -> ConfigError:
    text = str(error)
    match = re.search(r" - at `\$\.?(.*)`$", text)
    path = re.sub(r"\[(\d+)\]", r".\1", match.group(1)) if match else ""
    problem = text[: match.start()] if match else text
    value: Any = tree
    for part in path.split(".") if path else ():
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list | tuple) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
    near = None
    allowed = _allowed_values(path)
    if allowed:
        problem = f"{value!r} is not one of {', '.join(map(repr, allowed))}"
        near = _nearest(str(value), allowed)
    else:
        problem = f"{value!r} cannot be used: {problem[0].lower()}{problem[1:]}"
    return ConfigError(path or "configuration", problem + ".", nearest=near)


def _allowed_values(path: str) -> list[str]:
    kind: Any = Config
    for part in path.split("."):
        if part.isdigit():
            kind = get_args(kind)[0]
        elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            kind = get_type_hints(kind).get(part)
        else:
            return []
    return [str(v) for v in get_args(kind)] if get_origin(kind) is Literal else []


def _nearest(name: str, known: Iterable[str]) -> str | None:
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return found[0] if found else None
