"""`page`: the live page of a run from a process of its own, also when the run is over."""

from __future__ import annotations

import argparse
import sys

import anyio

from stream_rl import config as configuration
from stream_rl.app.watching import serve_page
from stream_rl.observe.rundir import RunDirectory
from stream_rl.rubrics import vocabulary


def run(arguments: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    run_dir = RunDirectory.existing(arguments.run)
    config = configuration.load([run_dir.config])
    words = vocabulary.load(config.judge.vocabulary)

    async def serve() -> None:
        async with anyio.create_task_group() as tasks:
            address = await tasks.start(serve_page, run_dir, config, words, arguments.port)
            sys.stdout.write(f"{run_dir.root.name}: watch it at {address}; Ctrl-C ends it\n")
            sys.stdout.flush()

    anyio.run(serve)
    return 0
