"""`export`: a checkpoint as a Hugging Face model folder, rollouts as Parquet, the run as a trace for Perfetto."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec

from learner.checkpoint_state import STATE_FILE, latest
from stream_rl import adapters
from stream_rl.app.adapter_checkpoint import write_merged
from stream_rl.errors import UsageError
from stream_rl.observe.archive import Archive
from stream_rl.observe.parquet import check_installed, write_parquet
from stream_rl.observe.rundir import RunDirectory
from stream_rl.observe.trace import write_trace

TRAJECTORIES = "trajectories.parquet"
_WEIGHTS = "model.safetensors"
_ADAPTER = "adapter"
_NOT_EXPORTED = frozenset({"engine", STATE_FILE, "teacher.safetensors"})  # what only training on needs


def run(arguments: argparse.Namespace) -> int:
    """Write what was asked for. Refuses to write over anything."""
    run_dir = RunDirectory.existing(arguments.run)
    if arguments.to is None and arguments.trace is None:
        raise UsageError("nothing to export: give --to DIR, --trace FILE, or both")
    if arguments.to is None and (arguments.only or arguments.checkpoint is not None):
        raise UsageError("--only and --checkpoint say what goes to a folder: give it with --to DIR")
    if arguments.only == "trajectories" and arguments.checkpoint is not None:
        raise UsageError("--checkpoint chooses a model, and --only trajectories exports none")
    facts: dict[str, Any] = {"run": str(run_dir.root)}
    if arguments.to is not None:
        facts |= _folder(run_dir, Path(arguments.to), arguments.only, arguments.checkpoint)
    if arguments.trace is not None:
        facts["trace"] = _trace(run_dir, Path(arguments.trace))
    sys.stdout.write((json.dumps(facts) if arguments.json else _told(facts)) + "\n")
    return 0


def _folder(run_dir: RunDirectory, target: Path, only: str | None, version: int | None) -> dict[str, Any]:
    """Everything is made beside the target and renamed, so that the folder is whole or not there."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} is there already; export to a folder that does not exist, or is empty")
    checkpoint = None if only == "trajectories" else _checkpoint(run_dir, version)
    if only != "model":
        check_installed()
        _need_ledger(run_dir)
    partial = target.parent / f".{target.name}.partial"
    facts: dict[str, Any] = {"to": str(target)}
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        if checkpoint is not None:
            facts["model"] = {"version": int(checkpoint.name), "files": _copy_model(checkpoint, partial)}
        if only != "model":
            with Archive(run_dir.ledger) as archive:
                written = write_parquet(archive.rollouts(), partial / TRAJECTORIES)
            facts["trajectories"] = {"file": str(target / TRAJECTORIES), **msgspec.to_builtins(written)}
        partial.rename(target)
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror}") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return facts


def _checkpoint(run_dir: RunDirectory, version: int | None) -> Path:
    newest = latest(run_dir.root)
    if newest is None:
        raise UsageError(
            f"{run_dir.root} has no checkpoint yet, so there is no model; --only trajectories exports the rest"
        )
    if version is None:
        return newest
    found = {int(p.name): p for p in run_dir.checkpoints.glob("*") if p.name.isdigit() and (p / STATE_FILE).is_file()}
    if version not in found:
        there = ", ".join(map(str, sorted(found)))
        raise UsageError(f"{run_dir.root} has no checkpoint of version {version}; there are {there}")
    return found[version]


def _copy_model(checkpoint: Path, target: Path) -> list[str]:
    """A checkpoint is a model folder with what training on needs beside it: everything but that is copied.

    Adapters are added to their base, and go as they are into a folder of their own: beside the merged model,
    `from_pretrained` would add them a second time.
    """
    files = sorted(f for f in checkpoint.iterdir() if f.is_file() and f.name not in _NOT_EXPORTED)
    adapter = [file for file in files if file.name in (adapters.CONFIG_FILE, adapters.WEIGHTS_FILE)]
    present = {file.name for file in files}
    missing = ({adapters.CONFIG_FILE, adapters.WEIGHTS_FILE} if adapter else {"config.json", _WEIGHTS}) - present
    if missing:
        raise UsageError(f"{checkpoint} lacks {', '.join(sorted(missing))}; export another version with --checkpoint")
    written = {file.name: file for file in files if file not in adapter}
    if adapter:
        (target / _ADAPTER).mkdir()
        written |= {f"{_ADAPTER}/{file.name}": file for file in adapter}
    for name, file in written.items():
        shutil.copyfile(file, target / name)
    return sorted([*written, *(write_merged(checkpoint, target) if adapter else ())])


def _trace(run_dir: RunDirectory, file: Path) -> dict[str, Any]:
    _need_ledger(run_dir)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        return {"file": str(file), **msgspec.to_builtins(write_trace(run_dir, file))}
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}") from None


def _need_ledger(run_dir: RunDirectory) -> None:
    if not run_dir.ledger.exists():
        raise UsageError(f"{run_dir.root} has no ledger yet: it has not begun to roll out")


def _told(facts: dict[str, Any]) -> str:
    lines = []
    if model := facts.get("model"):
        lines.append(f"model of version {model['version']}: {facts['to']} (loads with from_pretrained)")
    if rows := facts.get("trajectories"):
        lines.append(
            f"{rows['rows']} trajectories: {rows['file']} ({rows['num_bytes'] / 1e6:.1f} MB, "
            f"{rows['row_groups']} row groups; columns: docs/sinks.md)"
        )
    if trace := facts.get("trace"):
        lines.append(
            f"trace of {trace['groups']} groups and {trace['updates']} updates over {trace['seconds']:.0f} s: "
            f"{trace['file']} (open it in https://ui.perfetto.dev)"
        )
    return "\n".join(lines)
