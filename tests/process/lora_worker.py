"""One learner rank of `test_lora`: python -m tests.process.lora_worker FOLDER. Writes FOLDER/result.json."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors.torch import load_file

from learner.distributed import TrainRound, World
from learner.trainer import Trainer
from stream_rl.config import Algorithm
from tests.process.deepspeed_worker import LEARNER, groups_of, options_for
from tests.process.rank import answer, step

RANK, ALPHA = 4, 8.0
ALGORITHM = Algorithm(kl_coef=0.01)  # so that there is a reference
SETTINGS = msgspec.structs.replace(
    LEARNER, lora_rank=RANK, lora_alpha=ALPHA, checkpoint_every=1, mini_batches=1, token_budget=1024
)


def trains(world: World, folder: Path, stage: int) -> dict[str, Any]:
    """Two updates, the second one again from the checkpoint before it; what was published, and the base."""
    name = f"zero{stage}"
    options = options_for(folder, name, stage)
    learner = msgspec.structs.replace(SETTINGS, zero_stage=stage)
    options = msgspec.structs.replace(options, learner=learner, algorithm=ALGORITHM)
    trainer = Trainer(options, world)
    manifests = [trainer.publish()]
    rounds = [TrainRound(update=k, groups=groups_of(k, None)) for k in range(2)]
    manifests += [step(trainer, command).manifest for command in rounds]
    unchanged = base_is_unchanged(trainer, folder / "model")
    checkpoint = folder / name / "checkpoints" / "000001"
    resumed = Trainer(msgspec.structs.replace(options, resume_from=str(checkpoint)), world)
    again = step(resumed, rounds[1]).manifest
    if world.rank:
        return {}
    assert again is not None
    return {
        "manifests": msgspec.to_builtins(manifests),
        "unchanged": unchanged,
        "again": again.fingerprint,
        "checkpoint_files": sorted(file.name for file in checkpoint.iterdir()),
    }


def base_is_unchanged(trainer: Trainer, model: Path) -> bool:
    """Whether every frozen parameter has the bits of the start policy's file."""
    import deepspeed

    wanted = load_file(model / "model.safetensors")
    seen = 0
    for name, parameter in trainer._engine._policy.causal_lm.named_parameters():
        if parameter.requires_grad:
            continue
        with deepspeed.zero.GatheredParameters([parameter], enabled=hasattr(parameter, "ds_id")):
            if not torch.equal(parameter.detach(), wanted[name.replace(".base_layer", "")]):
                return False
        seen += 1
    return seen == len(wanted)


def main(folder: Path) -> None:
    answer(folder, lambda world: {stage: trains(world, folder, stage) for stage in (1, 3)})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
