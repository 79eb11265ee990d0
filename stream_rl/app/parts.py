"""Parts that more than one role is put together from."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from envs.pool import WorkerPool
from stream_rl import config as configuration
from stream_rl.app import preflight
from stream_rl.config import Config
from stream_rl.observe.rundir import RunDirectory
from stream_rl.ports import Generator

if TYPE_CHECKING:
    from stream_rl.generate.options import GeneratorOptions


def run_of(arguments: argparse.Namespace) -> tuple[RunDirectory, Config]:
    """The run directory a role was started for, and its resolved configuration."""
    run = RunDirectory(Path(arguments.run))
    return run, configuration.load([run.config])


def judge_pid_file(run: RunDirectory, index: int) -> Path:
    """Where the embedded judge of an endpoint says which process it is, while it serves."""
    return run.root / f"judge_pid_{index}"


def judge_pids(run: RunDirectory, indices: Sequence[int]) -> Iterator[int]:
    """Processes of the embedded judges of these endpoints that have said so."""
    for index in indices:
        try:
            yield int(judge_pid_file(run, index).read_text(encoding="ascii"))
        except (FileNotFoundError, ValueError):  # it is being started again, or is about to write
            continue


def open_pool(config: Config) -> WorkerPool:
    """Worker processes of all configured worlds."""
    return WorkerPool(config.environments)


def num_held_out(config: Config, pool: WorkerPool) -> dict[str, int]:
    """Held-out tasks of each environment whose world counts them."""
    counts = {entry.name: pool.num_tasks(entry.name, "held_out") for entry in config.environments}
    return {name: count for name, count in counts.items() if count is not None}


def generator_options(config: Config, run: RunDirectory, model: str, index: int) -> GeneratorOptions:
    """What the `index`-th generator of a run is started with."""
    from stream_rl.generate.options import GeneratorOptions

    return GeneratorOptions(
        model=model,
        dtype=config.policy.dtype,
        max_model_len=config.generate.max_model_len,
        concurrency=config.generate.concurrency,
        threads=config.generate.threads,
        seed=config.seed * 1000 + index,
        run_id=run.run_id,
        update_deadline_s=config.weights.deadline_s,
        transport="nccl" if config.weights.transport == "nccl" else "files",
    )


async def start_generator(
    config: Config,
    run: RunDirectory,
    model: str,
    index: int,
    *,
    server: str = "",
    key_env: str = "",
    believe: bool = True,
) -> Generator:
    """The configured engine over the folder `model`, whose weights are its version 0; or the vLLM server at an address.

    A server was started over the same folder, or is not believed what it holds (`VllmHttpGenerator.start`). `key_env`
    names the variable that holds its key.
    """
    options = generator_options(config, run, model, index)
    engine = preflight.engine(config)
    if engine == "vllm-http" and not server:
        server, key_env = config.generate.servers[index], config.generate.key_env
    if server:
        from stream_rl.generate.vllm_http import VllmHttpGenerator

        return await VllmHttpGenerator.start(server, options, key_env=key_env, believe=believe)
    if engine == "vllm":
        from stream_rl.generate.vllm_engine import VllmGenerator

        return await VllmGenerator.start(options)
    if engine == "scripted":
        from stream_rl.generate.stand_in import stand_in

        return stand_in(options, turn_s=config.generate.scripted.turn_s, spread=config.generate.scripted.spread)
    from stream_rl.generate.transformers_engine import TransformersGenerator

    return await TransformersGenerator.start(options)
