"""One learner rank of `test_weights`: python -m tests.process.weights_worker FOLDER. Writes FOLDER/result.json."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import torch

from learner.distributed import TrainRound, World
from learner.engine import DeepSpeedEngine
from learner.trainer import Trainer
from tests.process.deepspeed_worker import LEARNER, NUM_UPDATES, groups_of, options_for
from tests.process.rank import answer, step
from tests.unit.learner.builders import tiny_policy

STAGES = (1, 2, 3)


def publishes(world: World, folder: Path, stage: int) -> list[Any]:
    """Manifests of the start policy and of every update, as plain data; empty but on rank 0."""
    options = options_for(folder, f"zero{stage}", stage)
    learner = msgspec.structs.replace(options.learner, checkpoint_every=0)
    trainer = Trainer(msgspec.structs.replace(options, learner=learner), world)
    manifests = [trainer.publish()]
    for update in range(NUM_UPDATES):
        command = TrainRound(update=update, groups=groups_of(update, None))
        manifests.append(step(trainer, command).manifest)
    return [msgspec.to_builtins(manifest) for manifest in manifests if manifest is not None]


def gathers_in_buckets(world: World, stage: int, bucket_bytes: int) -> bool:
    """Whether the parameters come out the same whatever the size of a bucket."""
    settings = msgspec.structs.replace(LEARNER, zero_stage=stage)
    engine = DeepSpeedEngine(tiny_policy(), settings, world, dtype="float32", bucket_bytes=bucket_bytes)
    got = [tensor.clone() for tensor in engine.full_parameters()]
    engine.close()
    wanted = [p.detach() for p in tiny_policy().causal_lm.parameters()]
    return len(got) == len(wanted) and all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))


def main(folder: Path) -> None:
    answer(
        folder,
        lambda world: {
            "manifests": {stage: publishes(world, folder, stage) for stage in STAGES},
            "buckets": {size: gathers_in_buckets(world, 3, size) for size in (1, 10_000)},
        },
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
