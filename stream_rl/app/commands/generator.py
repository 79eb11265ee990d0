"""`generator attach`, `detach`, `list`: vLLM servers of your own, for a run that goes on."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from typing import Any

import anyio

from stream_rl.app.control import ask
from stream_rl.errors import UsageError
from stream_rl.messages import AttachGenerator, DetachGenerator, FromControl, GeneratorsReply, ListGenerators
from stream_rl.observe.rundir import RunDirectory, newest_run


def run(arguments: argparse.Namespace) -> int:
    """Ask the run's orchestrator, and print its generators. Raises `ConfigError`, `UsageError`."""
    run_dir = RunDirectory.existing(arguments.run) if arguments.run else newest_run()
    reply = anyio.run(ask, run_dir, _question(arguments))
    if not isinstance(reply, GeneratorsReply):
        raise UsageError(f"{run_dir.root} is not running: nobody answers there")
    if reply.error:
        raise UsageError(reply.error)
    if arguments.json:
        sys.stdout.write(json.dumps(reply.generators) + "\n")
    else:
        sys.stdout.write("\n".join(_line(generator) for generator in reply.generators) + "\n")
    return 0


def _question(arguments: argparse.Namespace) -> FromControl:
    from stream_rl.generate.vllm_http_session import check_url

    match arguments.action:
        case "attach":
            return AttachGenerator(url=check_url(arguments.url), key_env=arguments.key_env)
        case "detach":
            return DetachGenerator(url=check_url(arguments.url))
    return ListGenerators()


def _line(generator: Mapping[str, Any]) -> str:
    where = generator["url"] or "its own engine"
    if generator["state"] == "starting":
        return f"{generator['name']:<14}{where}: not connected; see logs/{generator['name']}.log"
    return (
        f"{generator['name']:<14}{where}: {generator['state']}, {generator['engine']}, version {generator['version']}, "
        f"{generator['rollouts']} of {generator['capacity']} rollouts"
    )
