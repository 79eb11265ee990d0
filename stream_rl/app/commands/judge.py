"""`judge serve`, `judge ping`, and the endpoints of a running run: `judge attach`, `detach`, `list`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from urllib.parse import urlsplit

import anyio
import msgspec

from stream_rl.app.control import ask
from stream_rl.config import JudgeEndpoint
from stream_rl.errors import JudgeFailed, UsageError
from stream_rl.messages import AttachJudge, DetachJudge, FromControl, JudgesReply, ListJudges
from stream_rl.observe.rundir import RunDirectory, newest_run
from stream_rl.observe.status import endpoint_line


def run(arguments: argparse.Namespace) -> int:
    """Do what the action says."""
    actions: dict[str, Callable[[argparse.Namespace], int]] = {
        "serve": _serve,
        "ping": _ping,
        "attach": _attach,
        "detach": _detach,
        "list": _list,
    }
    return actions[arguments.action](arguments)


def _serve(arguments: argparse.Namespace) -> int:
    from judge.server import serve

    def ready(address: str) -> None:
        sys.stdout.write(f"rule judge listens at {address} (model rules); Ctrl-C ends it\n")
        sys.stdout.flush()

    anyio.run(serve, arguments.host, arguments.port, ready)
    return 0


def _ping(arguments: argparse.Namespace) -> int:
    from judge.ping import ping

    if urlsplit(arguments.url).scheme not in ("http", "https"):
        raise UsageError(f"{arguments.url!r} is no http(s) address; expected one as http://127.0.0.1:8765/v1")
    endpoint = JudgeEndpoint(
        url=arguments.url, model=arguments.model, key_env=arguments.key_env, deadline_s=arguments.deadline
    )
    report = anyio.run(ping, endpoint)
    if arguments.json:
        sys.stdout.write(json.dumps(msgspec.to_builtins(report)) + "\n")
    else:
        words = f"answers in {report.latency_s:.2f} s" if report.ok else report.problem
        sys.stdout.write(f"{arguments.url} ({arguments.model}): {words}\n")
    return 0 if report.ok else 1


def _attach(arguments: argparse.Namespace) -> int:
    values = {
        "url": arguments.url,
        "model": arguments.model,
        "key_env": arguments.key_env,
        "concurrency": arguments.concurrency,
        "requests_per_minute": arguments.requests_per_minute,
        "tokens_per_minute": arguments.tokens_per_minute,
        "deadline_s": arguments.deadline,
        "price_in": arguments.price_in,
        "price_out": arguments.price_out,
        "tier": arguments.tier,
    }
    return _tell(arguments, AttachJudge(endpoint=values))


def _detach(arguments: argparse.Namespace) -> int:
    return _tell(arguments, DetachJudge(url=arguments.url))


def _list(arguments: argparse.Namespace) -> int:
    return _tell(arguments, ListJudges())


def _tell(arguments: argparse.Namespace, question: FromControl) -> int:
    """Ask the run's orchestrator and print how its endpoints stand. Raises `UsageError`, `JudgeFailed`."""
    run_dir = RunDirectory.existing(arguments.run) if arguments.run else newest_run()
    reply = anyio.run(ask, run_dir, question)
    if not isinstance(reply, JudgesReply):
        raise UsageError(f"{run_dir.root} is not running: nobody answers there")
    if reply.error:
        raise JudgeFailed(reply.error)
    if arguments.json:
        sys.stdout.write(json.dumps(reply.endpoints) + "\n")
    else:
        lines = [endpoint_line(endpoint) for endpoint in reply.endpoints] or ["no endpoint is attached"]
        sys.stdout.write("\n".join(lines) + "\n")
    return 0
