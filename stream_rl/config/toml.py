"""A configuration as TOML text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from stream_rl.config.schema import Config


def to_toml(config: Config) -> str:
    """The resolved configuration as TOML. Holds no secret: keys are named by environment variable only."""
    return "\n".join(_toml_table(msgspec.to_builtins(config), "")) + "\n"


def _toml_table(table: Mapping[str, Any], prefix: str) -> list[str]:
    lines: list[str] = []
    tables: list[str] = []
    for key, value in table.items():
        name = f"{prefix}.{key}" if prefix else key
        if isinstance(value, Mapping):
            tables += ["", f"[{name}]", *_toml_table(value, name)]
        elif isinstance(value, list | tuple) and value and all(isinstance(v, Mapping) for v in value):
            for item in value:
                tables += ["", f"[[{name}]]", *_toml_table(item, name)]
        else:
            lines.append(f"{key} = {_toml_value(value)}")
    return lines + tables


def _toml_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml_value(v) for v in value) + "]"
    return msgspec.json.encode(str(value)).decode()
