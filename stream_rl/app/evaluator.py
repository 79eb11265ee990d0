"""The `evaluate` role: held-out validation of one model folder, outside any run."""

from __future__ import annotations

import argparse
from collections import deque
from contextlib import AsyncExitStack
from typing import Any

import anyio
import anyio.to_thread
import msgspec

from stream_rl.app.child import BoardPipe
from stream_rl.app.parts import num_held_out, open_pool, run_of, start_generator
from stream_rl.app.windows import windows
from stream_rl.config import Config
from stream_rl.messages import EvalLease, FromProducer, TrajectoryDone
from stream_rl.orchestrator.evaluation import Evaluation
from stream_rl.orchestrator.tasks import evaluation_tasks, stable_seed
from stream_rl.producer.group import run_group
from stream_rl.producer.rollout import Means
from stream_rl.producer.service import producer_activities
from stream_rl.renderer import load_renderer
from stream_rl.rubrics import vocabulary
from stream_rl.types import Task


async def evaluate(arguments: argparse.Namespace, board: BoardPipe, stop: anyio.Event) -> None:
    """Roll out every held-out task as the configuration says and tell the summary."""
    run, config = run_of(arguments)
    if config.generate.engine == "vllm-http":  # a server holds the weights of its run, not those of a folder
        config = msgspec.structs.replace(config, generate=msgspec.structs.replace(config.generate, engine="auto"))
    renderer = await anyio.to_thread.run_sync(load_renderer, arguments.model)
    async with AsyncExitStack() as stack:
        pool = await stack.enter_async_context(open_pool(config))
        generator = await start_generator(config, run, arguments.model, 0)
        stack.push_async_callback(generator.aclose)
        means = Means(
            generator=generator,
            environments=pool,
            renderer=renderer,
            vocabulary=vocabulary.load(config.judge.vocabulary),
            activities=producer_activities(),
            max_model_len=config.generate.max_model_len,
            windows=windows(config),
        )
        names = tuple(entry.name for entry in config.environments)
        tasks = evaluation_tasks(names, config.eval.tasks, num_held_out(config, pool))
        summary = await _roll_out(config, tasks, means, board)
    board({"type": "ready", "engine": generator.engine, **summary})


async def _roll_out(config: Config, tasks: list[Task], means: Means, board: BoardPipe) -> dict[str, Any]:
    evaluation = Evaluation(0, tasks, config.eval.rollouts)
    leases = deque(_lease(config, evaluation, group_id) for group_id in evaluation.waiting)
    total = len(leases)
    done = 0

    async def keep(message: FromProducer) -> None:
        if isinstance(message, TrajectoryDone):
            evaluation.add(message.trajectory)

    async def work() -> None:
        nonlocal done
        while leases:
            await run_group(leases.popleft(), means, keep)
            done += 1
            board({"type": "progress", "done": done, "total": total})

    async with anyio.create_task_group() as group:
        for _ in range(max(1, config.generate.concurrency // config.eval.rollouts)):
            group.start_soon(work)
    return evaluation.summary()


def _lease(config: Config, evaluation: Evaluation, group_id: str) -> EvalLease:
    task = evaluation.task(group_id)
    limits = config.limits(task.environment)
    return EvalLease(
        group_id=group_id,
        task=task,
        size=config.eval.rollouts,
        seed=stable_seed(config.seed, task.environment, "held_out", task.index),
        temperature=config.eval.temperature,
        max_tokens=limits.max_tokens,
        max_turns=limits.max_turns,
        deadline_s=config.groups.deadline_s,
    )
