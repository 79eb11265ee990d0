"""The picture of a run: success, where the learner's time went, staleness and entropy, over training time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stream_rl.observe.learner_time import PARTS, learner_times
from stream_rl.observe.progress import Z_95, evaluations
from stream_rl.observe.records import number
from stream_rl.observe.rundir import RunDirectory, read_json_lines
from stream_rl.observe.summary import ordered

SMOOTH = 5  # updates averaged for the bold train curve
_COLOURS = {
    "rollout_wait": "#d95f02",
    "judge_wait": "#e6ab02",
    "prox": "#a6cee3",
    "teacher": "#b2abd2",
    "train": "#1b9e77",
    "publish": "#666666",
    "other": "#cccccc",
}

Curve = tuple[list[float], list[float]]


def learning_curve(run: RunDirectory) -> Path:
    """Draw `report/learning_curve.png` and return its path. A run without records gives empty panels."""
    from matplotlib.figure import Figure  # heavy: half a second

    lines = ordered(read_json_lines(run.metrics))
    figure = Figure(figsize=(9, 10), layout="constrained")
    success, time, health = figure.subplots(3, 1, height_ratios=[3, 2, 2])
    _draw_success(success, lines, list(read_json_lines(run.eval)), run.root.name)
    _draw_time(time, lines)
    _draw_health(health, lines)
    run.report.mkdir(parents=True, exist_ok=True)
    path = run.report / "learning_curve.png"
    figure.savefig(path, dpi=120)
    return path


def curve(lines: Sequence[Mapping[str, Any]], x: Sequence[str], y: Sequence[str]) -> Curve:
    """(x, y) of the lines that hold both."""
    pairs = [(a, b) for line in lines if (a := number(line, *x)) is not None and (b := number(line, *y)) is not None]
    return [a for a, _ in pairs], [b for _, b in pairs]


def running_mean(values: Sequence[float], width: int) -> list[float]:
    """Mean of each value and up to `width` - 1 before it."""
    return [sum(values[max(0, i - width + 1) : i + 1]) / min(width, i + 1) for i in range(len(values))]


def _draw_success(axes: Any, lines: Sequence[Mapping[str, Any]], evals: Sequence[Mapping[str, Any]], name: str) -> None:
    seconds, train = curve(lines, ("train_s",), ("success", "train"))
    axes.plot(seconds, train, color="#9ecae1", linewidth=1)
    axes.plot(seconds, running_mean(train, SMOOTH), color="#3182bd", label=f"training rollouts, mean of {SMOOTH}")
    points = evaluations(evals)
    axes.errorbar(
        [p.train_s for p in points],
        [p.success for p in points],
        yerr=[Z_95 * p.stderr for p in points],
        color="#d62728",
        marker="o",
        capsize=3,
        label="held-out tasks, 95 % interval",
    )
    axes.set(title=f"{name}: success", xlabel="training seconds", ylabel="success rate", ylim=(0, 1))
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left")


def _draw_time(axes: Any, lines: Sequence[Mapping[str, Any]]) -> None:
    times = list(learner_times(lines))
    steps = [number(line, "step") or 0.0 for line in lines]
    base = [0.0] * len(times)
    for part in PARTS:
        heights = [time.parts[part] for time in times]
        if any(heights):
            axes.bar(steps, heights, bottom=base, width=0.9, color=_COLOURS[part], label=part.replace("_", " "))
            base = [b + h for b, h in zip(base, heights, strict=True)]
    axes.set(title="where the learner's time went", xlabel="update", ylabel="seconds")
    if any(base):
        axes.set_ylim(0, 1.3 * max(base))  # room for the legend
        axes.legend(loc="upper right", ncols=4, fontsize="small")


def _draw_health(axes: Any, lines: Sequence[Mapping[str, Any]]) -> None:
    steps, lags = curve(lines, ("step",), ("lag", "max"))
    axes.step(steps, lags, where="mid", color="#7570b3", label="lag, oldest token of the update")
    axes.set(title="staleness and entropy", xlabel="update", ylabel="updates", ylim=(0, max(lags, default=0) + 1))
    axes.yaxis.get_major_locator().set_params(integer=True)
    other = axes.twinx()
    steps, entropy = curve(lines, ("step",), ("entropy",))
    other.plot(steps, entropy, color="#e7298a", label="token entropy")
    other.set(ylabel="nats", ylim=(0, 1.1 * max(entropy, default=1.0) or 1.0))
    handles, labels = axes.get_legend_handles_labels()
    more, others = other.get_legend_handles_labels()
    axes.legend([*handles, *more], [*labels, *others], loc="upper right")
