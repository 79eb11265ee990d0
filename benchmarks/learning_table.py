"""The table and the curves of the learning benchmark, from what each run left. Pure, but for `draw`."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from stream_rl.observe.learner_time import PARTS, learner_times
from stream_rl.observe.progress import Evaluated, evaluations, seconds_to
from stream_rl.observe.records import number, sum_numbers
from stream_rl.observe.summary import ordered

HORIZON_S = 300.0  # training seconds within which a run is judged
THRESHOLD = 0.6


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """One run, as far as the benchmark looks at it."""

    system: str  # "stream" or "plain"
    algorithm: str  # "rised" or "grpo"
    seed: int  # of the run
    points: tuple[Evaluated, ...]  # held-out evaluations in order
    updates: int  # trained within the horizon
    update_s: dict[str, float] = {}  # mean training seconds of an update by part; they add up


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A run as a line of the table."""

    start: float  # held-out success at the start
    end: float  # at the last evaluation within the horizon
    gain: float  # end - start
    to_threshold_s: float | None  # training seconds to `THRESHOLD`, None if not within the horizon
    updates: int
    update_s: float  # mean training seconds of an update


def stream_curve(
    algorithm: str, seed: int, metrics: Iterable[Mapping[str, Any]], evals: Iterable[Mapping[str, Any]]
) -> Curve:
    """From the metrics.jsonl and eval.jsonl of a run directory."""
    lines = [line for line in ordered(metrics) if (number(line, "train_s") or 0.0) <= HORIZON_S]
    parts = sum_numbers(time.parts for time in learner_times(lines))
    return Curve(
        system="stream",
        algorithm=algorithm,
        seed=seed,
        points=_within(evaluations(evals)),
        updates=len(lines),
        update_s={part: parts[part] / len(lines) for part in PARTS} if lines else {},
    )


def plain_curve(algorithm: str, seed: int, records: Iterable[Mapping[str, Any]]) -> Curve:
    """From the JSON lines of the plain loop."""
    records = list(records)
    updates = [r for r in records if r["type"] == "update" and r["train_s"] <= HORIZON_S]
    parts = sum_numbers(dict(r["parts"]) for r in updates)
    points = tuple(
        Evaluated(version=r["update"], train_s=r["train_s"], success=r["success"], stderr=r["stderr"])
        for r in records
        if r["type"] == "eval"
    )
    return Curve(
        system="plain",
        algorithm=algorithm,
        seed=seed,
        points=_within(points),
        updates=len(updates),
        update_s={part.removesuffix("_s"): s / len(updates) for part, s in parts.items()},
    )


def summarise_curve(curve: Curve) -> Row | None:
    """The line of one run; None when it was never evaluated."""
    if not curve.points:
        return None
    start, end = curve.points[0].success, curve.points[-1].success
    return Row(
        start=start,
        end=end,
        gain=end - start,
        to_threshold_s=seconds_to(curve.points, THRESHOLD),
        updates=curve.updates,
        update_s=sum(curve.update_s.values()),
    )


def render(curves: Sequence[Curve]) -> str:
    """The page: for each algorithm a table of seeds with mean and spread, then where an update's time went."""
    page = [
        "# Learning on the embedded default",
        "",
        f"Held-out success (200 tasks x 2 rollouts, temperature 1) within {HORIZON_S:.0f} training seconds; evaluation "
        f"does not count. Seconds to {THRESHOLD:.0%} are linear between evaluations. The stream uses all cores of the "
        "machine, the plain loop (`benchmarks/plain_loop.py`) one. Spread is the standard deviation over seeds.",
    ]
    for algorithm in sorted({c.algorithm for c in curves}, reverse=True):
        mine = [c for c in curves if c.algorithm == algorithm]
        page += ["", f"## {algorithm.upper()}", "", *_seed_table(mine), "", *_time_table(mine)]
    return "\n".join(page) + "\n"


def draw(curves: Sequence[Curve], path: Path) -> None:
    """One panel for each algorithm, a line for each run."""
    from matplotlib.figure import Figure

    algorithms = sorted({c.algorithm for c in curves}, reverse=True)
    figure = Figure(figsize=(6 * max(1, len(algorithms)), 5), layout="constrained")
    panels = figure.subplots(1, max(1, len(algorithms)), squeeze=False, sharey=True)[0]
    styles = {"stream": ("#d62728", "-"), "plain": ("#888888", "--")}
    for axes, algorithm in zip(panels, algorithms, strict=False):
        told = set()
        for c in (c for c in curves if c.algorithm == algorithm):
            colour, line = styles[c.system]
            label = None if c.system in told else {"stream": "stream-rl", "plain": "plain loop, one core"}[c.system]
            told.add(c.system)
            x, y = [p.train_s for p in c.points], [p.success for p in c.points]
            axes.plot(x, y, line, marker="o", markersize=3, color=colour, alpha=0.7, label=label)
        axes.axhline(THRESHOLD, color="black", linewidth=0.5)
        axes.set(title=algorithm.upper(), xlabel="training seconds", ylabel="held-out success", ylim=(0, 1))
        axes.grid(alpha=0.3)
        axes.legend(loc="upper left")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def _within(points: Sequence[Evaluated]) -> tuple[Evaluated, ...]:
    return tuple(p for p in points if p.train_s <= HORIZON_S)


def _seed_table(curves: Sequence[Curve]) -> list[str]:
    stream = {c.seed: row for c in curves if c.system == "stream" and (row := summarise_curve(c))}
    plain = {c.seed: row for c in curves if c.system == "plain" and (row := summarise_curve(c))}
    lines = [
        f"| seed | start | end | gain | s to {THRESHOLD:.0%} | updates | s/update | plain loop: end | s to "
        f"{THRESHOLD:.0%} | s/update |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for seed in sorted(stream | plain):
        a, b = stream.get(seed), plain.get(seed)
        cells = [str(seed), *_cells(a), *(_cells(b)[i] for i in (1, 3, 5))]
        lines.append(f"| {' | '.join(cells)} |")
    ours, theirs = list(stream.values()), list(plain.values())
    cells = ["mean +- spread", *_means(ours), *(_means(theirs)[i] for i in (1, 3, 5))]
    return [*lines, f"| {' | '.join(cells)} |"]


def _cells(row: Row | None) -> list[str]:
    if row is None:
        return ["-"] * 6
    seconds = "never" if row.to_threshold_s is None else f"{row.to_threshold_s:.0f}"
    return [f"{row.start:.3f}", f"{row.end:.3f}", f"{row.gain:+.3f}", seconds, str(row.updates), f"{row.update_s:.2f}"]


def _means(rows: Sequence[Row]) -> list[str]:
    def show(spec: str, value: Callable[[Row], float]) -> str:
        values = [value(row) for row in rows]
        if not values:
            return "-"
        spread = f" +- {statistics.stdev(values):{spec.lstrip('+')}}" if len(values) > 1 else ""
        return f"{statistics.fmean(values):{spec}}{spread}"

    # A mean over the runs that reached the threshold would flatter: without all of them there is none.
    reached = [row for row in rows if row.to_threshold_s is not None]
    if reached and len(reached) == len(rows):
        seconds = show(".0f", lambda row: row.to_threshold_s or 0.0)
    else:
        seconds = f"{len(reached)} of {len(rows)}" if rows else "-"
    return [
        show(".3f", lambda row: row.start),
        show(".3f", lambda row: row.end),
        show("+.3f", lambda row: row.gain),
        seconds,
        show(".0f", lambda row: row.updates),
        show(".2f", lambda row: row.update_s),
    ]


def _time_table(curves: Sequence[Curve]) -> list[str]:
    lines = []
    for system, title in (("stream", "learner of the stream"), ("plain", "plain loop")):
        mine = [c.update_s for c in curves if c.system == system and c.update_s]
        total = sum_numbers(mine)
        if mine:
            parts = ", ".join(f"{part.replace('_', ' ')} {s / len(mine):.2f} s" for part, s in total.items())
            lines.append(f"- {title}, mean seconds of an update: {parts}")
    return lines
