"""One run of a comparison: everything `up` starts, without its board."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec

from stream_rl import config as configuration
from stream_rl.app import preflight
from stream_rl.app.depth.trials import Trial
from stream_rl.app.plans import plans, sockets_folder
from stream_rl.app.supervisor import Supervisor
from stream_rl.errors import StreamRLError
from stream_rl.observe.rundir import RunDirectory, read_json_lines

Progress = Callable[[int], None]  # updates done


class TrialFailed(StreamRLError):
    """A run of the comparison did not come to its end, and nobody had stopped it."""


class Trained(msgspec.Struct, frozen=True, kw_only=True):
    """A run that has ended."""

    run: RunDirectory
    stopped: bool  # before its last update, by a signal


def train(trial: Trial, base: Path, progress: Progress) -> Trained:
    """Run `trial` under `base` to its end. Ctrl-C ends it in order, as with `up`.

    Raises `TrialFailed` with the reason, `UsageError` for a folder that holds a run.
    """
    config = trial.config
    run = RunDirectory.create(base / trial.name)
    failures: list[str] = []

    def board(event: dict[str, Any]) -> None:
        match event["type"]:
            case "update":
                progress(int(event["step"]) + 1)
            case "failed":
                failures.append(str(event["error"]))

    with run.exclusive():
        run.config.write_text(configuration.to_toml(config), encoding="utf-8")
        weights = preflight.weights_directory(config, run.run_id, run.root / "weights")
        supervisor = Supervisor(
            run=run,
            plans=plans(config, run, weights=weights),
            scratch=(weights, sockets_folder(run.run_id)),
            board=board,
        )
        code = anyio.run(supervisor.run)
    if failures:
        failure = TrialFailed(f"the run {trial.name} failed: {failures[0]}")
        failure.exit_code = code
        raise failure
    return Trained(run=run, stopped=len(list(read_json_lines(run.metrics))) < config.updates)
