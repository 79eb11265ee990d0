"""One rank of a worker of several that start from the same tiny model and leave one answer."""

from __future__ import annotations

import faulthandler
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import torch

from learner.distributed import TrainRound, World
from learner.trainer import Trainer
from stream_rl.types import WeightsManifest
from tests.unit.learner.builders import save_tiny


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What one update gave."""

    metrics: dict[str, Any]
    manifest: WeightsManifest | None  # on rank 0


def step(trainer: Trainer, command: TrainRound) -> Step:
    """One whole update, and its version published before the next."""
    metrics = trainer.update(command, lambda _: None)
    manifest = trainer.publish()
    trainer.end_update(lambda _: None)
    return Step(metrics=metrics, manifest=manifest)


def answer(folder: Path, find: Callable[[World], dict[Any, Any]]) -> None:
    """Join the others, with the model in `folder`/model; rank 0 writes what it found to `folder`/result.json."""
    faulthandler.dump_traceback_later(250, exit=True)  # a hang shows where, and ends
    torch.set_num_threads(1)
    world = World.join()
    if world.rank == 0:
        save_tiny(folder / "model")
    world.barrier()
    found = find(world)
    if world.rank == 0:
        (folder / "result.json").write_bytes(msgspec.json.encode(found))
    world.barrier()
    world.leave()
