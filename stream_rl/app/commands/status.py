"""`status`: what a run is doing now, asked of its orchestrator; of a run that is over, what it left."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import anyio

from stream_rl.app.control import ask
from stream_rl.errors import UsageError
from stream_rl.messages import StatusReply, StatusRequest
from stream_rl.observe.report import render_status
from stream_rl.observe.rundir import RunDirectory, read_json_lines


def run(arguments: argparse.Namespace) -> int:
    """Print it."""
    run_dir = RunDirectory.existing(arguments.run)
    reply = anyio.run(ask, run_dir, StatusRequest())
    facts = reply.status if isinstance(reply, StatusReply) else _left_behind(run_dir)
    sys.stdout.write((json.dumps(facts) if arguments.json else render_status(facts)) + "\n")
    return 0


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
