"""`envs serve`: a world behind HTTP, in worker processes of its own."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from typing import Any

import anyio

from envs.adapters.server import serve as serve_world
from envs.pool import WorkerPool
from stream_rl.config import EnvironmentConfig
from stream_rl.errors import StreamRLError, UsageError


def serve(arguments: argparse.Namespace, options: dict[str, Any]) -> int:
    """Serve until SIGINT or SIGTERM. Raises `UsageError`, `ConfigError`, `EnvironmentFailed`."""
    if arguments.key_env and not os.environ.get(arguments.key_env):
        raise UsageError(f"--key-env: the environment variable {arguments.key_env} is not set")
    anyio.run(_serve, arguments, options)
    return 0


async def _serve(arguments: argparse.Namespace, options: dict[str, Any]) -> None:
    """The world until a signal comes. Its own errors come out as they are, not as a group."""
    failed: list[StreamRLError] = []
    async with anyio.create_task_group() as group:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:

            async def until_over() -> None:
                try:
                    await _offer(arguments, options)
                except StreamRLError as error:
                    failed.append(error)
                group.cancel_scope.cancel()

            group.start_soon(until_over)
            async for _ in signals:
                group.cancel_scope.cancel()
    if failed:
        raise failed[0]


async def _offer(arguments: argparse.Namespace, options: dict[str, Any]) -> None:
    def ready(address: str) -> None:
        sys.stdout.write(f"{arguments.name} listens at {address}; Ctrl-C ends it\n")
        sys.stdout.flush()

    config = EnvironmentConfig(
        name=arguments.name,
        data=arguments.data,
        options=options,
        workers=arguments.workers,
        step_deadline_s=arguments.deadline,
        worker_memory_mib=arguments.memory,
    )
    async with WorkerPool([config], start_deadline_s=arguments.start) as pool:
        await serve_world(
            pool,
            config.name,
            host=arguments.host,
            port=arguments.port,
            key=os.environ.get(arguments.key_env, "") if arguments.key_env else "",
            capacity=arguments.sessions,
            idle_s=arguments.idle,
            on_ready=ready,
        )
