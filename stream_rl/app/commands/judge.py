"""`judge serve` and `judge ping`."""

from __future__ import annotations

import argparse
import json
import sys

import anyio
import msgspec

from stream_rl.config import JudgeEndpoint


def run(arguments: argparse.Namespace) -> int:
    """Serve until Ctrl-C, or ping once."""
    return _serve(arguments) if arguments.action == "serve" else _ping(arguments)


def _serve(arguments: argparse.Namespace) -> int:
    from judge.server import serve

    def ready(address: str) -> None:
        sys.stdout.write(f"rule judge listens at {address} (model rules); Ctrl-C ends it\n")
        sys.stdout.flush()

    anyio.run(serve, arguments.host, arguments.port, ready)
    return 0


def _ping(arguments: argparse.Namespace) -> int:
    from judge.ping import ping

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
