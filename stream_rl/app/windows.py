"""How the configured environments are prompted: which of them have windows, and by which prompt file."""

from __future__ import annotations

from pathlib import Path

from envs import prompts
from stream_rl.config import Config, EnvironmentConfig
from stream_rl.errors import ConfigError
from stream_rl.producer.history import Window
from stream_rl.producer.template import parse_template


def windows(config: Config) -> dict[str, Window]:
    """The windows of environments with `history`, by name.

    Raises `ConfigError` for a prompt file that cannot be read or used.
    """
    return {e.name: _window(e, f"environments.{i}.template") for i, e in enumerate(config.environments) if e.history}


def _window(entry: EnvironmentConfig, path: str) -> Window:
    own = entry.name if entry.name in prompts.names() else prompts.GENERIC
    source = entry.template or own
    template = parse_template(_text(source, path), source, thinking=entry.thinking, path=path)
    return Window(template=template, turns=entry.history, thinking=entry.thinking)


def _text(source: str, path: str) -> str:
    known = prompts.names()
    if source in known:
        return prompts.read(source)
    try:
        return Path(source).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            path, f"{source!r} cannot be read: {error.strerror}; it is neither one of {', '.join(known)} nor a file."
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigError(path, f"{source!r} is not UTF-8 text: {error}.") from None
