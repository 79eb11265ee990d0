"""`compare`: runs side by side, seeds grouped, with intervals, cost and plots."""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from stream_rl.config import from_dict
from stream_rl.errors import ConfigError, UsageError
from stream_rl.observe.compare import Contender, compare, contender
from stream_rl.observe.compare_page import render_markdown, render_text
from stream_rl.observe.compare_plots import draw
from stream_rl.observe.report import read_summary
from stream_rl.observe.rundir import RunDirectory, read_json_lines

_PICTURE = "comparison.png"


def run(arguments: argparse.Namespace) -> int:
    """Write comparison.md, comparison.json and comparison.png, and print the table, or the facts as JSON."""
    runs = _contenders(arguments.runs)
    found = compare(runs)
    facts = msgspec.json.format(msgspec.json.encode(found), indent=2).decode()
    target = Path(arguments.to)
    try:
        target.mkdir(parents=True, exist_ok=True)
        draw(found, runs, target / _PICTURE)
        (target / "comparison.json").write_text(facts + "\n", encoding="utf-8")
        (target / "comparison.md").write_text(render_markdown(found, picture=_PICTURE), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror}; choose another folder with --to") from None
    text = facts if arguments.json else f"{render_text(found)}\ncomparison: {target}/comparison.md, {target}/{_PICTURE}"
    sys.stdout.write(text + "\n")
    return 0


def _contenders(named: list[str]) -> list[Contender]:
    found = [RunDirectory.existing(name) for name in named]
    roots = [run_dir.root.resolve() for run_dir in found]
    if twice := [str(root) for root, times in Counter(roots).items() if times > 1]:
        raise UsageError(f"{twice[0]} is named twice: a run is compared with others, not with itself")
    names = Counter(root.name for root in roots)
    runs = []
    for run_dir, root in zip(found, roots, strict=True):
        if not (run_dir.metrics.exists() or run_dir.eval.exists()):
            raise UsageError(f"{run_dir.root} has trained and evaluated nothing yet: leave it out")
        runs.append(
            contender(
                root.name if names[root.name] == 1 else str(root),
                _config(run_dir.config),
                read_summary(run_dir),
                read_json_lines(run_dir.metrics),
                read_json_lines(run_dir.eval),
            )
        )
    return runs


def _config(path: Path) -> Mapping[str, Any]:
    """With defaults filled in, so that a run from before an option and one that leaves it alone are one setting."""
    tree = tomllib.loads(path.read_text(encoding="utf-8"))
    try:
        config: Mapping[str, Any] = msgspec.to_builtins(from_dict(tree))
    except ConfigError:  # of another release: compared as it stands
        return tree
    return config
