"""Parts that more than one role is put together from."""

from __future__ import annotations

import argparse
from pathlib import Path

from envs.pool import WorkerPool
from stream_rl import config as configuration
from stream_rl.app import preflight
from stream_rl.config import Config
from stream_rl.observe.rundir import RunDirectory
from stream_rl.ports import Generator


def run_of(arguments: argparse.Namespace) -> tuple[RunDirectory, Config]:
    """The run directory a role was started for, and its resolved configuration."""
    run = RunDirectory(Path(arguments.run))
    return run, configuration.load([run.config])


def open_pool(config: Config) -> WorkerPool:
    """Worker processes of all configured worlds."""
    return WorkerPool(config.environments)


def num_held_out(config: Config, pool: WorkerPool) -> dict[str, int]:
    """Held-out tasks of each environment whose world counts them."""
    counts = {entry.name: pool.num_tasks(entry.name, "held_out") for entry in config.environments}
    return {name: count for name, count in counts.items() if count is not None}


async def start_generator(config: Config, run: RunDirectory, model: str, index: int) -> Generator:
    """The configured engine over the folder `model`, whose weights are its version 0."""
    from stream_rl.generate.options import GeneratorOptions

    options = GeneratorOptions(
        model=model,
        dtype=config.policy.dtype,
        max_model_len=config.generate.max_model_len,
        concurrency=config.generate.concurrency,
        threads=config.generate.threads,
        seed=config.seed * 1000 + index,
        run_id=run.run_id,
    )
    if preflight.engine(config) == "vllm":
        from stream_rl.generate.vllm_engine import VllmGenerator

        return await VllmGenerator.start(options)
    from stream_rl.generate.transformers_engine import TransformersGenerator

    return await TransformersGenerator.start(options)
