"""`envs check`: a player through a world's tasks, or a proof of the user's data."""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import msgspec

from envs import registry
from envs.players import MakePlayer, RandomPlayer, scripted
from envs.pool import WorkerPool
from envs.trial import TrialReport, run_trial
from stream_rl.config import EnvironmentConfig
from stream_rl.errors import UsageError
from stream_rl.types import Split

GOLD, TRANSCRIPTS = "replay_gold", "replay_transcripts"
_WRONG = ("failed", "mismatches")  # what a proof counts that should not be there


def check(arguments: argparse.Namespace, options: dict[str, Any]) -> int:
    """Exit code 0 when nothing was wrong, 1 otherwise. Raises `UsageError`, `ConfigError`, `EnvironmentFailed`."""
    if arguments.gold or arguments.transcripts:
        return _prove(arguments, options)
    report = anyio.run(_try, arguments, options)
    if arguments.json:
        sys.stdout.write(json.dumps(msgspec.to_builtins(report)) + "\n")
    else:
        sys.stdout.write(told(report))
    return 0 if report.flawless else 1


async def _try(arguments: argparse.Namespace, options: dict[str, Any]) -> TrialReport:
    player: MakePlayer = scripted(arguments.name) if arguments.player == "scripted" else RandomPlayer
    if arguments.player == "random":
        options = {**_asking(arguments.name), **options}
    config = EnvironmentConfig(
        name=arguments.name,
        data=arguments.data,
        options=options,
        workers=arguments.workers,
        step_deadline_s=arguments.deadline,
        worker_memory_mib=arguments.memory,
    )
    split: Split = "held_out" if arguments.split == "held_out" else "train"
    async with WorkerPool([config], start_deadline_s=arguments.start) as pool:
        return await run_trial(
            pool,
            config.name,
            player,
            tasks=arguments.tasks,
            split=split,
            parallel=arguments.parallel,
            max_turns=arguments.max_turns,
            seed=arguments.seed,
        )


def _asking(world: str) -> dict[str, Any]:
    """A world with an option `admissible` is asked for its actions, so that the random player has something to draw."""
    takes = inspect.signature(registry.factory(world)).parameters
    return {"admissible": True} if "admissible" in takes else {}


def told(report: TrialReport) -> str:
    """A report for people."""
    r = report
    lines = [
        f"{r.world}/{r.split}: {r.episodes} of {r.tasks} episodes played, {r.solved} solved"
        + ("" if r.score_mean is None else f", mean score {r.score_mean:.3f}"),
        f"{r.steps} steps in {r.seconds:.2f} s: {r.steps_per_s:.0f} steps/s"
        + ("" if r.invalid_share is None else f", {100 * r.invalid_share:.1f} % not understood"),
    ]
    if r.memory_mib is not None:
        m = r.memory_mib
        lines.append(
            f"memory of the largest worker: {m.start:.0f} MiB at first, {m.end:.0f} at last, peak {m.peak:.0f}"
        )
    lines.append(f"faults: {sum(r.faults.values()) or 'none'}; worker restarts: {r.restarts}")
    lines += [f"  {count} x {cause}" for cause, count in r.faults.items()]
    lines += [f"  refused: {task}" for task in r.refused]
    return "\n".join(lines) + "\n"


def _prove(arguments: argparse.Namespace, options: dict[str, Any]) -> int:
    if not arguments.data:
        raise UsageError("--gold and --transcripts replay your data: say where it is with --data")
    name = GOLD if arguments.gold else TRANSCRIPTS
    replay = _proof(arguments.name, name)
    given = [Path(arguments.data)] if arguments.gold else [Path(arguments.data), Path(arguments.transcripts)]
    for path in given:
        if not path.exists():
            raise UsageError(f"{path}: no such file or folder")
    try:
        inspect.signature(replay).bind(*given, **options)
    except TypeError as error:
        raise UsageError(f"--option does not fit {arguments.name} {name}: {error}") from None
    result: Mapping[str, Any] = msgspec.to_builtins(replay(*given, **options))
    if arguments.json:
        sys.stdout.write(json.dumps(result) + "\n")
    else:
        width = max(map(len, result))
        sys.stdout.writelines(f"{key:<{width}}  {value}\n" for key, value in result.items())
    complete = "games" not in result or result["games"] == result.get("won")
    return 0 if complete and not any(result.get(key) for key in _WRONG) else 1


def _proof(world: str, name: str) -> Callable[..., Mapping[str, Any]]:
    """The function of the module `check` beside the world's own. Raises `UsageError` where there is none."""
    known = registry.find(world)
    if known is None:
        registry.factory(world)  # says what is wrong with the name
    assert known is not None
    package = known.target.partition(":")[0].rpartition(".")[0]
    module = f"{package}.check" if package else "check"
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise
        found = None
    if not callable(found):
        raise UsageError(f"{world} has nothing to replay: {module} has no function {name}")
    replay: Callable[..., Mapping[str, Any]] = found
    return replay
