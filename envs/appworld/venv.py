"""The venv that AppWorld has for itself: it needs pydantic before 2, which nothing else here can share."""

from __future__ import annotations

import os
from pathlib import Path

from stream_rl.errors import ConfigError

VARIABLE = "STREAM_RL_APPWORLD_PYTHON"
SETUP = "stream-rl envs setup appworld"


def default_folder() -> Path:
    """Where `stream-rl envs setup appworld` puts it: `appworld` in `$STREAM_RL_CACHE`, else in `~/.cache/stream_rl`."""
    named = os.environ.get("STREAM_RL_CACHE")
    return (Path(named) if named else Path.home() / ".cache" / "stream_rl") / "appworld"


def interpreter(folder: Path) -> Path:
    """The Python of a venv."""
    return folder / "bin" / "python"


def find_python(option: str) -> Path:
    """The interpreter that has AppWorld: by the option, the variable, or the default venv. Raises `ConfigError`."""
    named = option or os.environ.get(VARIABLE, "")
    python = Path(named) if named else interpreter(default_folder())
    if not os.access(python, os.X_OK):
        origin = "option python" if option else VARIABLE if named else "the default venv"
        raise ConfigError(
            "environments.options.python",
            f"{python} ({origin}) is no program; make AppWorld's venv with `{SETUP}`, or name your servers by "
            "option urls.",
        )
    return python.absolute()  # not resolved: the link is what makes it the venv's
