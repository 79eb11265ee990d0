"""How fast the embedded default learns, beside a plain loop on one core.

    python -m benchmarks.embedded_learning [--seeds 0,1,2,3,4] [--algorithms rised,grpo] [--reuse]

For each seed `stream-rl up` with the shipped configurations, one run after the other; then the plain loop with the
prototype's recipe, until it reaches 60 %. A plain loop takes one core: those of two algorithms run side by side, each
on a core of its own. Writes docs/results/embedded_learning.{md,png,json} after every run, so it can be interrupted;
with --reuse, runs that are finished are not run again.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from benchmarks.learning_table import HORIZON_S, THRESHOLD, Curve, draw, plain_curve, render, stream_curve
from benchmarks.recipes import RECIPES
from stream_rl.observe.report import read_summary
from stream_rl.observe.rundir import RunDirectory, read_json_lines

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"
PLAIN_S = HORIZON_S - 10.0  # the last update and evaluation come after it and shall lie within the horizon


def stream_run(runs: Path, algorithm: str, seed: int, *, reuse: bool, overrides: Sequence[str]) -> Curve | None:
    """Run `stream-rl up`, or read what an earlier run left; None for a run that failed."""
    name = f"learning-{algorithm}-{seed}"
    run = RunDirectory(runs / name)
    if not (reuse and read_summary(run).complete):
        shutil.rmtree(run.root, ignore_errors=True)
        settings = [part for text in (f"seed={seed}", *overrides) for part in ("--set", text)]
        if not _ran([sys.executable, "-m", "stream_rl.cli", "up", str(RECIPES[algorithm]), "--name", name, *settings]):
            return None
    return stream_curve(algorithm, seed, read_json_lines(run.metrics), read_json_lines(run.eval))


def plain_out(runs: Path, algorithm: str, seed: int) -> Path:
    """Where a plain loop leaves its records."""
    return runs / f"learning-plain-{algorithm}-{seed}.jsonl"


def plain_runs(runs: Path, algorithms: Sequence[str], seed: int, *, reuse: bool, seconds: float) -> list[Curve]:
    """Run the plain loops of one seed, each on a core of its own, or read what earlier ones left."""
    runs.mkdir(exist_ok=True)
    cores = len(os.sched_getaffinity(0))
    waiting = [a for a in algorithms if not (reuse and _plain_complete(plain_out(runs, a, seed), seconds))]
    for i in range(0, len(waiting), cores):
        started = []
        for core, algorithm in enumerate(waiting[i : i + cores]):
            command = [sys.executable, "-m", "benchmarks.plain_loop", "--algorithm", algorithm, "--seed", str(seed)]
            command += ["--seconds", str(seconds), "--until", str(THRESHOLD), "--core", str(core)]
            command += ["--out", str(plain_out(runs, algorithm, seed))]
            print(f"\n$ {' '.join(command)}", flush=True)
            started.append(subprocess.Popen(command, cwd=ROOT))
        for process in started:
            if process.wait():
                print(f"exit code {process.returncode}: a plain loop is left out of the table", file=sys.stderr)
    outs = {a: plain_out(runs, a, seed) for a in algorithms}
    return [plain_curve(a, seed, read_json_lines(out)) for a, out in outs.items() if _plain_complete(out, seconds)]


def _plain_complete(out: Path, seconds: float) -> bool:
    evals = [r for r in read_json_lines(out) if r["type"] == "eval"]
    return any(r["train_s"] >= seconds or r["success"] >= THRESHOLD for r in evals)


def _ran(command: list[str]) -> bool:
    print(f"\n$ {' '.join(command)}", flush=True)
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    if code:
        print(f"exit code {code}: this run is left out of the table", file=sys.stderr)
    return code == 0


def _curves(options: argparse.Namespace) -> Iterator[Curve | None]:
    runs = ROOT / "runs"
    seeds = [int(text) for text in options.seeds.split(",")]
    algorithms = options.algorithms.split(",")
    for seed in seeds:  # stream and plain loop in turn: a machine's speed drifts over minutes
        for algorithm in algorithms:
            yield stream_run(runs, algorithm, seed, reuse=options.reuse, overrides=options.overrides)
        if options.no_plain:
            continue
        plain = plain_runs(runs, algorithms, seed, reuse=options.reuse, seconds=options.plain_seconds)
        yield from plain
        yield from [None] * (len(algorithms) - len(plain))


def write(curves: Sequence[Curve], folder: Path) -> None:
    """The page, the picture and the numbers behind them."""
    folder.mkdir(parents=True, exist_ok=True)
    draw(curves, folder / "embedded_learning.png")
    page = f"{render(curves)}\n![held-out success over training seconds](embedded_learning.png)\n"
    (folder / "embedded_learning.md").write_text(page, encoding="utf-8")
    (folder / "embedded_learning.json").write_bytes(msgspec.json.format(msgspec.json.encode(curves), indent=2))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0,1,2,3,4", help="comma-separated")
    parser.add_argument("--algorithms", default="rised,grpo", help="comma-separated")
    parser.add_argument("--reuse", action="store_true", help="do not run again what is finished")
    parser.add_argument("--no-plain", action="store_true", help="only the stream")
    parser.add_argument("--plain-seconds", type=float, default=PLAIN_S, help="training seconds of the plain loop")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides")
    options = parser.parse_args()
    unknown = set(options.algorithms.split(",")) - set(RECIPES)
    if unknown:
        parser.error(f"unknown algorithms {sorted(unknown)}; known are {sorted(RECIPES)}")
    curves: list[Curve] = []
    failed = 0
    for curve in _curves(options):
        if curve is None:
            failed += 1
            continue
        curves.append(curve)
        write(curves, RESULTS)
    print(f"\n{len(curves)} runs in {RESULTS / 'embedded_learning.md'}, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
