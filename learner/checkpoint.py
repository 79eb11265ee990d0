"""Checkpoints: everything needed to train on, and a Hugging Face export that is a model folder by itself.

`checkpoints/000020/` holds config.json, model.safetensors and the tokenizer's files (the export), `engine/`
(DeepSpeed's own shards) and `state.json`; a teacher that is a moving average adds teacher.safetensors. With adapters
there are adapter_config.json and adapter_model.safetensors, as peft writes them, in place of the model. The folder
appears by renaming, so that it is complete or not there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec
import torch

from learner.checkpoint_state import STATE_FILE, CheckpointState, CheckpointUnusable, read_state
from learner.distributed import World
from learner.engine import DeepSpeedEngine
from learner.shadow import MovingAverage
from learner.weights import safetensors
from learner.weights.port import TensorSpec
from stream_rl import adapters
from stream_rl.types import AdapterRecord

_ENGINE = "engine"
_TEACHER = "teacher.safetensors"
_WEIGHT_SUFFIXES = {".safetensors", ".bin", ".gguf", ".pt", ".pth", ".h5", ".msgpack"}


def save(
    engine: DeepSpeedEngine,
    world: World,
    root: Path,
    *,
    version: int,
    run_id: str,
    zero_stage: int,
    config_digest: str,
    model_folder: Path,
    teacher: MovingAverage | None = None,
    adapter: AdapterRecord | None = None,
) -> Path:
    """Write `root/VERSION` and return it. Called by all ranks; `model_folder` gives the tokenizer's files."""
    target = root / f"{version:06d}"
    partial = root / f".{target.name}.partial"
    if world.rank == 0:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
    world.barrier()
    engine.save(partial / _ENGINE)
    specs = engine.specs
    if world.rank == 0:
        file = "model.safetensors" if adapter is None else adapters.WEIGHTS_FILE
        safetensors.write(partial / file, specs, engine.full_parameters())
    else:
        for _ in engine.full_parameters():
            pass
    world.barrier()
    if world.rank == 0:
        _copy_tokenizer(model_folder, partial)
        engine.export_config(partial)
        if teacher is not None:  # the same on every rank
            teacher.save(partial / _TEACHER)
        state = CheckpointState(
            version=version,
            run_id=run_id,
            num_ranks=world.size,
            zero_stage=zero_stage,
            model_digest=model_digest(specs),
            config_digest=config_digest,
            torch_rng=bytes(torch.get_rng_state().numpy().data).hex(),
            adapter=adapter,
        )
        (partial / STATE_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(state), indent=1))
        _sync_files(partial)
        if target.exists():  # of an update that is trained again after a crash
            shutil.rmtree(target)
        partial.rename(target)
    world.barrier()
    return target


def load(
    engine: DeepSpeedEngine,
    world: World,
    folder: Path,
    *,
    run_id: str,
    zero_stage: int,
    teacher: MovingAverage | None = None,
    adapter: AdapterRecord | None = None,
) -> CheckpointState:
    """Restore parameters, optimiser, random state and the averaged `teacher`, if there is one. Called by all ranks.

    Raises `CheckpointUnusable` when the checkpoint is incomplete, of another run, of another number of ranks or ZeRO
    stage, or of another model: DeepSpeed would otherwise load shards that do not belong together.
    """
    state = read_state(folder)
    wanted: list[tuple[str, object, object]] = [
        ("run", state.run_id, run_id),
        ("number of learner ranks (learner.ranks)", state.num_ranks, world.size),
        ("ZeRO stage (learner.zero_stage)", state.zero_stage, zero_stage),
        ("adapter (learner.lora_rank, learner.lora_alpha, fingerprint of the base)", state.adapter, adapter),
        ("model (digest of parameter names and shapes)", state.model_digest, model_digest(engine.specs)),
    ]
    for what, found, expected in wanted:
        if found != expected:
            raise CheckpointUnusable(f"{folder}: its {what} is {found}, this learner's is {expected}")
    if teacher is not None:
        teacher.load(folder / _TEACHER)
    engine.load(folder / _ENGINE)
    torch.set_rng_state(torch.frombuffer(bytearray.fromhex(state.torch_rng), dtype=torch.uint8))
    return state


def model_digest(specs: Sequence[TensorSpec]) -> str:
    """Digest of names, dtypes and shapes, in name order."""
    rows = sorted((spec.name, str(spec.dtype), spec.shape) for spec in specs)
    return hashlib.sha256(msgspec.json.encode(rows)).hexdigest()[:16]


def _copy_tokenizer(model_folder: Path, target: Path) -> None:
    """Everything beside the model's weights: tokenizer, chat template, generation settings."""
    for file in model_folder.iterdir():
        is_weights = file.suffix in _WEIGHT_SUFFIXES or file.name.endswith(".index.json")
        if file.is_file() and not is_weights and file.name not in ("config.json", STATE_FILE):
            shutil.copyfile(file, target / file.name)


def _sync_files(folder: Path) -> None:
    """Flush to disk: after the rename, a power cut must not leave a complete-looking folder of empty files."""
    for file in [*folder.rglob("*")]:
        if file.is_file():
            with file.open("rb") as handle:
                os.fsync(handle.fileno())
