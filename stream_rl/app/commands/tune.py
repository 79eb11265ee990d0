"""`tune`: change the async depth of a running run, pause it, let it go on."""

from __future__ import annotations

import argparse
import json
import sys

import anyio

from stream_rl.app.control import ask
from stream_rl.errors import UsageError
from stream_rl.messages import Tune, TuneReply
from stream_rl.observe.rundir import RunDirectory, newest_run


def run(arguments: argparse.Namespace) -> int:
    """Ask the run's orchestrator, and print what is in force then. Raises `UsageError` for a refusal."""
    run_dir = RunDirectory.existing(arguments.run) if arguments.run else newest_run()
    reply = anyio.run(ask, run_dir, Tune(async_depth=arguments.async_depth, paused=arguments.paused))
    if not isinstance(reply, TuneReply):
        raise UsageError(f"{run_dir.root} is not running: nobody answers there")
    if reply.error:
        raise UsageError(reply.error)
    if arguments.json:
        sys.stdout.write(json.dumps({"async_depth": reply.async_depth, "paused": reply.paused}) + "\n")
    else:
        sys.stdout.write(f"async_depth {reply.async_depth}, {'paused' if reply.paused else 'going on'}\n")
    return 0
