"""Sinks by the names a configuration gives them. Their packages are imported when a sink starts, not before."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence

import msgspec

from stream_rl.errors import ConfigError
from stream_rl.sinks import wandb
from stream_rl.sinks.port import RunFacts, Sink
from stream_rl.sinks.prometheus import PrometheusSink
from stream_rl.sinks.tensorboard import TensorBoardSink
from stream_rl.sinks.trackio import TrackioSink


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of sink."""

    start: Callable[[RunFacts], Sink]  # blocking; may take seconds
    package: str = ""  # it needs; also the name of our extra; empty: none
    problem: Callable[[], str | None] = lambda: None  # why it could not work, apart from the package


ENTRIES: Mapping[str, Entry] = {
    "tensorboard": Entry(start=TensorBoardSink, package="tensorboard"),
    "wandb": Entry(start=wandb.WandbSink, package="wandb", problem=wandb.missing_key),
    "trackio": Entry(start=TrackioSink, package="trackio"),
    "prometheus": Entry(start=PrometheusSink),
}


def check(names: Sequence[str]) -> None:
    """Everything that would keep a sink from starting, as far as it can be known. Raises `ConfigError`."""
    if len(set(names)) != len(names):
        raise ConfigError("sinks", f"each name may stand once; got {', '.join(names)}.")
    for i, name in enumerate(names):
        entry = ENTRIES[name]
        if entry.package and importlib.util.find_spec(entry.package) is None:
            raise ConfigError(
                f"sinks.{i}",
                f"{name!r} needs the package {entry.package}: pip install 'stream-rl[{entry.package}]'.",
            )
        if problem := entry.problem():
            raise ConfigError(f"sinks.{i}", problem)
