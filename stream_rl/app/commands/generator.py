"""`generator attach`, `detach`, `list`: vLLM servers of your own, for a run that goes on."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

import anyio

from stream_rl import config as configuration
from stream_rl.app.control import ask
from stream_rl.app.parts import generator_options
from stream_rl.errors import UsageError
from stream_rl.messages import AttachGenerator, DetachGenerator, FromControl, GeneratorsReply, ListGenerators
from stream_rl.observe.absence import why_absent
from stream_rl.observe.rundir import RunDirectory, newest_run, read_json_lines


def run(arguments: argparse.Namespace) -> int:
    """Ask the run's orchestrator, and print its generators.

    A server is looked at before it is attached. Raises `ConfigError`, `GeneratorBroken`, `UsageError`.
    """
    run_dir = RunDirectory.existing(arguments.run) if arguments.run else newest_run()
    if not run_dir.address.exists():
        raise UsageError(f"{run_dir.root} is not running")
    question = _question(arguments)
    if isinstance(question, AttachGenerator):
        if question.key_env and question.key_env not in os.environ:
            sys.stderr.write(f"{question.key_env} is not set here: the run itself looks at the server\n")
        else:
            anyio.run(_look, run_dir, question)
    reply = anyio.run(ask, run_dir, question)
    if not isinstance(reply, GeneratorsReply):
        raise UsageError(f"{run_dir.root} is not running: nobody answers there")
    if reply.error:
        raise UsageError(reply.error)
    generators = [_with_problem(generator, run_dir) for generator in reply.generators]
    if arguments.json:
        sys.stdout.write(json.dumps(generators) + "\n")
    else:
        sys.stdout.write("\n".join(_line(generator) for generator in generators) + "\n")
    return 0


def _question(arguments: argparse.Namespace) -> FromControl:
    from stream_rl.generate.vllm_http_session import check_url

    match arguments.action:
        case "attach":
            return AttachGenerator(url=check_url(arguments.url), key_env=arguments.key_env)
        case "detach":
            return DetachGenerator(url=check_url(arguments.url))
    return ListGenerators()


async def _look(run_dir: RunDirectory, question: AttachGenerator) -> None:
    """Whether the server can serve this run, before the run hears of it."""
    from stream_rl.generate.vllm_http_inspection import inspect
    from stream_rl.generate.vllm_http_session import ServerSession

    config = configuration.load([run_dir.config])
    options = generator_options(config, run_dir, run_dir.policy.read_text(encoding="utf-8"), 0)
    session = ServerSession(question.url, key_env=question.key_env, connections=1)
    try:
        await inspect(session, options)
    finally:
        await session.aclose()


def _with_problem(generator: dict[str, Any], run_dir: RunDirectory) -> dict[str, Any]:
    """With the key `problem`: why it is not connected, where that is known."""
    absent = generator["state"] == "not connected"
    problem = why_absent(read_json_lines(run_dir.events), generator["name"]) if absent else ""
    return {**generator, "problem": problem}


def _line(generator: Mapping[str, Any]) -> str:
    where = generator["url"] or "its own engine"
    if generator["state"] == "not connected":
        return f"{generator['name']:<14}{where}: {generator['problem'] or 'starting'}"
    return (
        f"{generator['name']:<14}{where}: {generator['state']}, {generator['engine']}, version {generator['version']}, "
        f"{generator['rollouts']} of {generator['capacity']} rollouts"
    )
