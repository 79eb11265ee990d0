"""`eval`: held-out validation of a run's last checkpoint, of a checkpoint, or of any model folder. No guidance."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import anyio

from stream_rl import adapters
from stream_rl import config as configuration
from stream_rl.app import defaults, preflight
from stream_rl.app.adapter_checkpoint import holds_adapter, write_merged
from stream_rl.app.one_off import answer_of
from stream_rl.config import Config
from stream_rl.errors import UsageError
from stream_rl.observe.rundir import RunDirectory


def run(arguments: argparse.Namespace) -> int:
    """Evaluate and print success by environment, overall and its standard error."""
    model, config = _target(arguments)
    preflight.check_generation(config)
    with tempfile.TemporaryDirectory(prefix="stream-rl-eval-") as folder:
        run_dir = RunDirectory.create(Path(folder))
        run_dir.config.write_text(configuration.to_toml(config), encoding="utf-8")
        played = Path(model).resolve()
        if holds_adapter(played):
            played = _whole(played, Path(folder) / "model")
        summary = anyio.run(_evaluate, run_dir, str(played))
    facts = {"target": arguments.target, "model": model, **summary}
    code = 0 if summary["valid"] else 1
    if arguments.json:
        sys.stdout.write(json.dumps(facts) + "\n")
        return code
    success, stderr = summary["success"], summary["stderr"]
    for name, value in success["by_env"].items():
        sys.stdout.write(f"{name}: {value:.3f}\n")
    overall = (
        "undefined, a world has no valid rollout"
        if success["overall"] is None
        else f"{success['overall']:.3f} +- {stderr:.3f}"
    )
    sys.stdout.write(
        f"overall: {overall} ({summary['tasks']} tasks x {summary['rollouts']} rollouts, "
        f"{summary['invalid']} invalid, {summary['engine']})\n"
    )
    return code


def _target(arguments: argparse.Namespace) -> tuple[str, Config]:
    """Model folder and configuration of what the user named."""
    folder = Path(arguments.target)
    given = {key: getattr(arguments, key) for key in ("tasks", "rollouts", "temperature")}
    overrides = [*arguments.overrides, *(f"eval.{key}={v}" for key, v in given.items() if v is not None)]
    if _is_model(folder):
        run_config = folder.parent.parent / "config.toml"
        files = [str(run_config)] if folder.parent.name == "checkpoints" and run_config.is_file() else []
        return str(folder), defaults.load(files, overrides)
    try:
        run_dir = RunDirectory.existing(arguments.target)
    except UsageError as error:
        raise UsageError(f"{arguments.target!r} is no model folder (it has no config.json) and {error}") from None
    found = sorted(p for p in run_dir.checkpoints.glob("*") if _is_model(p) and p.name.isdigit())
    if not found:
        raise UsageError(f"{run_dir.root} has no checkpoint yet")
    return str(found[-1]), configuration.load([run_dir.config], overrides)


def _is_model(folder: Path) -> bool:
    return (folder / "config.json").is_file() or holds_adapter(folder)


def _whole(checkpoint: Path, target: Path) -> Path:
    """A checkpoint of adapters as a model folder, for as long as the evaluation takes."""
    target.mkdir()
    for file in checkpoint.iterdir():  # the tokenizer
        if file.is_file() and file.name not in (adapters.CONFIG_FILE, adapters.WEIGHTS_FILE):
            shutil.copyfile(file, target / file.name)
    write_merged(checkpoint, target)
    return target


async def _evaluate(run_dir: RunDirectory, model: str) -> dict[str, Any]:
    def progress(event: dict[str, Any]) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{event['done']}/{event['total']} tasks")

    result = await answer_of("evaluate", run_dir, model, progress)
    return {key: value for key, value in result.items() if key not in ("version", "versions")}
