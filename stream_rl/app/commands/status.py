"""`status`: what a run is doing now, asked of its orchestrator; of a run that is over, what it left."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

import anyio

from stream_rl.errors import LinkError, UsageError
from stream_rl.link.codec import Decoder
from stream_rl.messages import StatusReply, StatusRequest
from stream_rl.observe.report import render_status
from stream_rl.observe.rundir import RunDirectory, read_json_lines

_ANSWER_S = 5.0


def run(arguments: argparse.Namespace) -> int:
    """Print it."""
    run_dir = RunDirectory.existing(arguments.run)
    status = anyio.run(_ask, run_dir.address.read_text(encoding="ascii")) if run_dir.address.exists() else None
    facts = status or _left_behind(run_dir)
    sys.stdout.write((json.dumps(facts) if arguments.json else render_status(facts)) + "\n")
    return 0


async def _ask(address: str) -> dict[str, Any] | None:
    """The orchestrator's answer; None when nobody answers there any more."""
    from stream_rl.link.limits import Limits
    from stream_rl.link.zmq_link import open_link

    limits = Limits(silence_s=_ANSWER_S, heartbeat_s=1.0)
    receive: Decoder[StatusReply] = Decoder(StatusReply)
    try:
        async with open_link(
            address, role="control", name=f"status-{os.getpid()}", receive=receive, limits=limits
        ) as link:
            await link.send(StatusRequest())
            async for delivery in link:
                delivery.ack()
                return delivery.message.status
    except LinkError:
        return None
    return None


def _left_behind(run_dir: RunDirectory) -> dict[str, Any]:
    lines = list(read_json_lines(run_dir.metrics))
    evals = list(read_json_lines(run_dir.eval))
    events = list(read_json_lines(run_dir.events))
    if not (lines or evals or events):
        raise UsageError(f"{run_dir.root} has not done anything yet")
    last = lines[-1] if lines else {}
    return {
        "run": run_dir.root.name,
        "phase": "not running",
        "version": last.get("version", 0),
        "wall_s": last.get("wall_s", 0.0),
        "train_s": last.get("train_s", 0.0),
        "success": last.get("success"),
        "lag": last.get("lag"),
        "eval": evals[-1] if evals else None,
        "last_event": events[-1] if events else None,
    }
