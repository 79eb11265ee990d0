"""`up`: train. One command, every role a real process."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TextIO

import anyio
import msgspec

from learner.checkpoint_state import latest
from stream_rl import config as configuration
from stream_rl.app import defaults, preflight
from stream_rl.app.plans import plans, sockets_folder
from stream_rl.app.supervisor import Supervisor
from stream_rl.config import Config
from stream_rl.errors import StreamRLError, UsageError
from stream_rl.observe.board import TerminalBoard
from stream_rl.observe.report import write_report
from stream_rl.observe.rundir import RunDirectory, keep_json_lines, read_json_lines
from stream_rl.sinks.board import Board, SinkBoard
from stream_rl.sinks.points import point_of
from stream_rl.sinks.port import RunFacts
from stream_rl.sinks.registry import ENTRIES

_KILLED = 130  # a second Ctrl-C


def run(arguments: argparse.Namespace) -> int:
    """Start everything, watch, and leave a report. Exit code 0 also after an ordered stop."""
    if arguments.resume:
        run_dir, config = _existing(arguments)
    else:
        run_dir, config = _new(arguments)
    with run_dir.exclusive():
        return _train(run_dir, config, resumed=bool(arguments.resume), json_lines=arguments.json)


def _train(run_dir: RunDirectory, config: Config, *, resumed: bool, json_lines: bool) -> int:
    checkpoint = _rewind(run_dir) if resumed else None
    run_dir.config.write_text(configuration.to_toml(config), encoding="utf-8")
    terminal = TerminalBoard(sys.stdout, is_terminal=sys.stdout.isatty())
    shown = partial(_json_line, sys.stdout) if json_lines else terminal
    weights = preflight.weights_directory(config, run_dir.run_id, run_dir.root / "weights")
    resumed_at = (int(checkpoint.name) if checkpoint else 0) if resumed else None
    with _sink_board(shown, run_dir, config, resumed_at) as board:
        supervisor = Supervisor(
            run=run_dir,
            plans=plans(config, run_dir, weights=weights, resume_from=checkpoint, resumed=resumed),
            scratch=(weights, sockets_folder(run_dir.run_id)),
            board=board,
        )
        board({"type": "start", "run": str(run_dir.root), "engine": preflight.engine(config), **_facts(config)})
        code = anyio.run(supervisor.run)
        if code == _KILLED:
            board.hurry()
    if code != _KILLED:
        _tell_end(run_dir, json_lines=json_lines)
    if board.stuck:
        _leave(code)
    return code


def _leave(code: int) -> NoReturn:
    """End the process without its exit handlers: those of a sink's package may wait for a service for ever."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def _new(arguments: argparse.Namespace) -> tuple[RunDirectory, Config]:
    config = defaults.load(arguments.config, arguments.overrides)
    preflight.check_static(config)
    preflight.check_judges(config)
    return RunDirectory.create(Path("runs") / (arguments.name or _name(arguments.config))), config


def _existing(arguments: argparse.Namespace) -> tuple[RunDirectory, Config]:
    """The run and its configuration, with overrides, if any."""
    if arguments.config or arguments.name:
        raise UsageError("--resume takes the run's own configuration and name; change keys with --set")
    run_dir = RunDirectory.existing(arguments.resume)
    before = configuration.load([run_dir.config])
    config = configuration.load([run_dir.config], arguments.overrides)
    done = latest(run_dir.root)
    if config.groups != before.groups or (done and config.updates < int(done.name)):
        raise UsageError("a run that has begun keeps its groups, and cannot end before its last checkpoint")
    _refuse_complete(run_dir, config, done)
    preflight.check_static(config)
    preflight.check_judges(config)
    run_dir.make_folders()
    return run_dir, config


def _refuse_complete(run_dir: RunDirectory, config: Config, done: Path | None) -> None:
    """A run that has trained every update, and said so, has nothing left to do. Raises `UsageError`."""
    finished = any(
        record.get("type") == "finished" and record.get("complete") and record.get("version") == config.updates
        for record in read_json_lines(run_dir.events)
    )
    if finished and done and int(done.name) == config.updates:
        raise UsageError(
            f"{run_dir.root} is complete: all its {config.updates} updates are trained; read `stream-rl report "
            f"{run_dir.root}`, or train on with --set updates={2 * config.updates}"
        )


def _rewind(run_dir: RunDirectory) -> Path | None:
    """The newest whole checkpoint, if there is one; records of what came after it are dropped."""
    checkpoint = latest(run_dir.root)
    version = int(checkpoint.name) if checkpoint else 0
    keep_json_lines(run_dir.metrics, version, "step")
    keep_json_lines(run_dir.eval, version + 1, "step")
    return checkpoint if version else None


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


def _sink_board(shown: Board, run_dir: RunDirectory, config: Config, resumed_at: int | None) -> SinkBoard:
    points = (point_of({"type": "eval", **record}) for record in read_json_lines(run_dir.eval))
    facts = RunFacts(
        name=run_dir.root.resolve().name,
        run_id=run_dir.run_id,
        folder=run_dir.root,
        config=msgspec.to_builtins(config),
        resumed_at=resumed_at,
        kept_evaluation=next((p for p in points if p is not None and p.step == resumed_at), None),
    )
    return SinkBoard(shown, run_dir, {name: ENTRIES[name].start for name in config.sinks}, facts)


def _json_line(stream: TextIO, event: Mapping[str, Any]) -> None:
    stream.write(json.dumps(event) + "\n")
    stream.flush()


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
