"""Where the shipped configurations are, and how the files of a command line become one configuration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stream_rl import config as configuration
from stream_rl.config import Config

SHIPPED = Path(__file__).resolve().parents[2] / "configs"
EMBEDDED = SHIPPED / "embedded-rised.toml"


def load(files: Sequence[str], overrides: Sequence[str]) -> Config:
    """The merged configuration; no file means the embedded default. Raises `ConfigError`."""
    return configuration.load([Path(f) for f in files] or [EMBEDDED], overrides)
