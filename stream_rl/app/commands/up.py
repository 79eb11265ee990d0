"""`up`: train. One command, every role a real process."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import msgspec

from stream_rl import config as configuration
from stream_rl.app import defaults, preflight
from stream_rl.app.plans import plans
from stream_rl.app.supervisor import Supervisor
from stream_rl.config import Config
from stream_rl.errors import StreamRLError, UsageError
from stream_rl.observe.board import TerminalBoard
from stream_rl.observe.report import write_report
from stream_rl.observe.rundir import RunDirectory, keep_json_lines


def run(arguments: argparse.Namespace) -> int:
    """Start everything, watch, and leave a report. Exit code 0 also after an ordered stop."""
    if arguments.resume:
        run_dir, config, checkpoint = _resumed(arguments)
    else:
        config = defaults.load(arguments.config, arguments.overrides)
        checkpoint = None
        preflight.check_static(config)
        preflight.check_judges(config)
        run_dir = RunDirectory.create(Path("runs") / (arguments.name or _name(arguments.config)))
        run_dir.config.write_text(configuration.to_toml(config), encoding="utf-8")
    board = _json_board if arguments.json else TerminalBoard(sys.stdout, is_terminal=sys.stdout.isatty())
    weights = preflight.weights_directory(config, run_dir.run_id, run_dir.root / "weights")
    supervisor = Supervisor(
        config=config,
        run=run_dir,
        plans=plans(config, run_dir, weights=weights, resume_from=checkpoint),
        weights=weights,
        board=board,
    )
    board({"type": "start", "run": str(run_dir.root), "engine": preflight.engine(config), **_facts(config)})
    code = anyio.run(supervisor.run)
    if code != 130:
        _tell_end(run_dir, json_lines=arguments.json)
    return code


def _resumed(arguments: argparse.Namespace) -> tuple[RunDirectory, Config, Path | None]:
    """The run, its configuration (with overrides, if any) and the newest whole checkpoint."""
    if arguments.config:
        raise UsageError("--resume takes the run's own configuration; change keys with --set")
    run_dir = RunDirectory.existing(arguments.resume)
    _refuse_running(run_dir)
    config = configuration.load([run_dir.config], arguments.overrides)
    preflight.check_static(config)
    preflight.check_judges(config)
    run_dir.config.write_text(configuration.to_toml(config), encoding="utf-8")
    found = sorted(p for p in run_dir.checkpoints.iterdir() if (p / "state.json").is_file() and p.name.isdigit())
    version = int(found[-1].name) if found else 0
    keep_json_lines(run_dir.metrics, version, "step")
    keep_json_lines(run_dir.eval, version + 1, "step")
    return run_dir, config, found[-1] if version else None


def _refuse_running(run_dir: RunDirectory) -> None:
    pid_file = run_dir.root / "pid"
    try:
        pid = int(pid_file.read_text(encoding="ascii"))
        os.kill(pid, 0)
    except (OSError, ValueError):
        return
    if pid != os.getpid():
        raise UsageError(f"{run_dir.root} is still running (process {pid}); stop it first")


def _name(files: list[str]) -> str:
    stem = Path(files[-1]).stem if files else "embedded"
    return f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}"


def _facts(config: Config) -> dict[str, Any]:
    return {
        "updates": config.updates,
        "async_depth": config.async_depth,
        "groups": msgspec.to_builtins(config.groups),
        "environments": [e.name for e in config.environments],
        "judges": [e.url for e in config.judge.endpoints],
        "selection": config.algorithm.selection,
        "distillation": config.algorithm.distillation,
        "steering": config.algorithm.steering,
    }


def _json_board(event: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def _tell_end(run_dir: RunDirectory, *, json_lines: bool) -> None:
    """The summary and the plots; a run that failed before its first update has none."""
    if not run_dir.metrics.exists() and not run_dir.eval.exists():
        return
    try:
        text = write_report(run_dir)
    except StreamRLError as error:
        text = f"no report: {error}"
    if not json_lines:
        sys.stdout.write(text + "\n")
