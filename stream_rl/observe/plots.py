"""Charts over the course of a run: success, reward, where the learner's time went, staleness, queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from stream_rl.observe.learner_time import PARTS, learner_times
from stream_rl.observe.progress import Z_95, evaluations
from stream_rl.observe.records import number, numbers
from stream_rl.observe.rundir import RunDirectory, read_json_lines
from stream_rl.observe.summary import ordered
from stream_rl.observe.theme import LIGHT, series_colour, state_colour, styled, write_png

SMOOTH = 5  # updates averaged for the bold train curve
_T_95 = {3: 4.303, 4: 3.182, 5: 2.776}  # two-sided 95 % quantiles of Student's t, by number of values
_BARS = 120  # most bars of a chart, and most points of a curve: four times as many
_LEVELS = {
    "groups_leased": "rolled out",
    "groups_produced": "at the judge",
    "groups_candidate": "judged, wait for their round",
    "groups_selected": "selected, wait for the learner",
}

Curve = tuple[list[float], list[float]]
Lines = Sequence[Mapping[str, Any]]


def learning_curve(run: RunDirectory) -> Path:
    """Draw `report/learning_curve.png` and return its path. A run without records gives empty panels."""
    lines = ordered(read_json_lines(run.metrics))
    with styled():
        figure = _figure(9, 10)
        success, time, health = figure.subplots(3, 1, height_ratios=[3, 2, 2])
        _draw_success(success, lines, list(read_json_lines(run.eval)))
        success.set_title(f"{run.root.name}: success")
        _draw_time(time, lines)
        _draw_health(health, lines)
        return write_png(figure, run.report / "learning_curve.png")


def success_chart(lines: Lines, evals: Lines) -> Any:
    """Success with intervals; beside it by world, where there are several, and the reward."""
    figure = _figure(9, 3.6)
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    _draw_success(left, lines, evals)
    worlds = list(dict.fromkeys(name for record in evals for name in numbers(record, "success", "by_env")))
    if len(worlds) > 1:
        for place, name in enumerate(worlds):
            right.plot(
                *curve(evals, ("train_s",), ("success", "by_env", name)), "o-", color=series_colour(place), label=name
            )
        right.set(title="held-out success by world", xlabel="training seconds", ylim=(0, 1))
        right.legend(fontsize="small")
    else:
        seconds, reward = curve(lines, ("train_s",), ("reward_mean",))
        _draw_mean(right, seconds, reward, colour=LIGHT["c2"], label=f"mean of {SMOOTH} updates, 95 % interval")
        right.set(title="reward of training rollouts", xlabel="training seconds")
        _legend(right, loc="best", fontsize="small")
    right.grid(alpha=0.5)
    return figure


def time_chart(lines: Lines) -> Any:
    """Seconds of the learner by part, for every update."""
    figure = _figure(9, 3.2)
    _draw_time(figure.subplots(), lines)
    return figure


def health_chart(lines: Lines) -> Any:
    """Staleness, entropy and how far sampler and policy drifted apart."""
    figure = _figure(9, 3.0)
    left, right = figure.subplots(1, 2)
    _draw_health(left, lines)
    steps, drift = curve(lines, ("step",), ("kl_behavior",))
    right.plot(*thinned(steps, drift), color=LIGHT["c3"])
    right.set(title="KL of sampler and policy at the update", xlabel="update", ylabel="nats a token")
    right.grid(alpha=0.5)
    return figure


def levels_chart(lines: Lines) -> Any:
    """Where the groups in flight are, and how many permits there are; messages that wait. None without such lines."""
    known = [line for line in lines if numbers(line, "levels", "permits_taken")]
    if not known:
        return None
    figure = _figure(9, 3.2)
    groups, messages = figure.subplots(1, 2, width_ratios=[3, 2])
    parts = bins(len(known), _BARS)
    steps = [_mean([number(line, "step") or 0.0 for line in known[part]]) for part in parts]
    base = [0.0] * len(parts)
    for place, (level, label) in enumerate(_LEVELS.items()):
        heights = [_mean([number(line, "levels", level, "mean") or 0.0 for line in known[part]]) for part in parts]
        groups.bar(steps, heights, bottom=base, width=_width(steps), color=series_colour(place), label=label)
        base = [b + h for b, h in zip(base, heights, strict=True)]
    permits = [
        sum(number(line, "levels", f"permits_{part}", "mean") or 0.0 for part in ("taken", "free")) for line in known
    ]
    ahead = thinned([number(line, "step") or 0.0 for line in known], permits)
    groups.step(*ahead, where="mid", color=LIGHT["ink"], linewidth=1.2, label="permits")
    groups.set(title="groups in flight, mean over the update", xlabel="update", ylabel="groups")
    groups.set_ylim(0, 1.55 * max(max(base, default=1.0), max(permits, default=1.0), 1.0))
    groups.legend(fontsize="small", ncols=2, loc="upper left")
    most = 0.0
    for place, (level, label) in enumerate(
        (("inbox", "events nobody dealt with yet"), ("outbox", "messages without credit"), ("judge_queue", "questions"))
    ):
        xs, ys = curve(known, ("step",), ("levels", level, "mean"))
        messages.plot(*thinned(xs, ys), color=series_colour(place), label=label)
        most = max(most, *ys, 1.0)
    messages.set(title="queues, mean over the update", xlabel="update")
    messages.set_ylim(0, 1.5 * most)  # room for the legend
    _legend(messages, loc="upper left", fontsize="small")
    return figure


def curve(lines: Lines, x: Sequence[str], y: Sequence[str]) -> Curve:
    """(x, y) of the lines that hold both."""
    pairs = [(a, b) for line in lines if (a := number(line, *x)) is not None and (b := number(line, *y)) is not None]
    return [a for a, _ in pairs], [b for _, b in pairs]


def running_mean(values: Sequence[float], width: int) -> list[float]:
    """Mean of each value and up to `width` - 1 before it."""
    return [sum(values[max(0, i - width + 1) : i + 1]) / min(width, i + 1) for i in range(len(values))]


def running_half(values: Sequence[float], width: int = SMOOTH) -> list[float | None]:
    """Half the 95 % interval of each running mean, by the spread of its values; None for fewer than three.

    Values are taken for independent, so a run that changes fast makes it wider, not narrower.
    """
    out: list[float | None] = []
    for i in range(len(values)):
        part = values[max(0, i - width + 1) : i + 1]
        if len(part) not in _T_95:
            out.append(None)
            continue
        mean = _mean(part)
        variance = sum((value - mean) ** 2 for value in part) / (len(part) - 1)
        out.append(_T_95[len(part)] * (variance / len(part)) ** 0.5)
    return out


def bins(count: int, most: int) -> list[slice]:
    """`count` things in order as at most `most` runs of nearly equal length.

    >>> bins(5, 2)
    [slice(0, 2, None), slice(2, 5, None)]
    """
    edges = [count * i // min(most, count) for i in range(min(most, count) + 1)] if count else []
    return [slice(a, b) for a, b in pairwise(edges)]


def thinned(xs: Sequence[float], ys: Sequence[float]) -> Curve:
    """The curve with no more points than a chart can show, each the mean of those it stands for."""
    parts = bins(len(xs), 4 * _BARS)
    return [_mean(xs[part]) for part in parts], [_mean(ys[part]) for part in parts]


def _figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure  # heavy: half a second

    return Figure(figsize=(width, height), layout="constrained")


def _draw_success(axes: Any, lines: Lines, evals: Lines) -> None:
    seconds, train = curve(lines, ("train_s",), ("success", "train"))
    _draw_mean(axes, seconds, train, colour=LIGHT["c0"], label=f"training rollouts, mean of {SMOOTH}, 95 % interval")
    if points := evaluations(evals):
        axes.errorbar(
            [p.train_s for p in points],
            [p.success for p in points],
            yerr=[Z_95 * p.stderr for p in points],
            color=LIGHT["c1"],
            marker="o",
            capsize=3,
            label="held-out tasks, 95 % interval",
        )
    axes.set(title="success", xlabel="training seconds", ylabel="success rate", ylim=(0, 1))
    axes.grid(alpha=0.5)
    _legend(axes, loc="upper left", fontsize="small")


def _draw_mean(axes: Any, xs: Sequence[float], ys: Sequence[float], *, colour: str, label: str) -> None:
    mean, half = running_mean(ys, SMOOTH), running_half(ys)
    banded = [(x, m, h) for x, m, h in zip(xs, mean, half, strict=True) if h is not None]
    if banded:
        places, low = thinned([x for x, _, _ in banded], [m - h for _, m, h in banded])
        _, high = thinned([x for x, _, _ in banded], [m + h for _, m, h in banded])
        axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.plot(*thinned(xs, ys), color=colour, linewidth=0.7, alpha=0.4)
    axes.plot(*thinned(xs, mean), color=colour, linewidth=1.8, label=label if mean else None)


def _draw_time(axes: Any, lines: Lines) -> None:
    times = list(learner_times(lines))
    parts = bins(len(times), _BARS)
    steps = [_mean([number(line, "step") or 0.0 for line in lines[part]]) for part in parts]
    base = [0.0] * len(parts)
    for name in PARTS:
        heights = [_mean([time.parts[name] for time in times[part]]) for part in parts]
        if any(heights):
            label = name.replace("_", " ")
            axes.bar(steps, heights, bottom=base, width=_width(steps), color=state_colour(name), label=label)
            base = [b + h for b, h in zip(base, heights, strict=True)]
    axes.set(title="where the learner's time went", xlabel="update", ylabel="seconds")
    if any(base):
        axes.set_ylim(0, 1.3 * max(base))  # room for the legend
        axes.legend(loc="upper right", ncols=4, fontsize="small")


def _draw_health(axes: Any, lines: Lines) -> None:
    steps, lags = curve(lines, ("step",), ("lag", "max"))
    axes.step(steps, lags, where="mid", color=LIGHT["c3"], label="lag, oldest token of the update")
    axes.set(title="staleness and entropy", xlabel="update", ylabel="updates", ylim=(0, max(lags, default=0) + 1))
    axes.yaxis.get_major_locator().set_params(integer=True)
    other = axes.twinx()
    steps, entropy = curve(lines, ("step",), ("entropy",))
    other.plot(*thinned(steps, entropy), color=LIGHT["c4"], label="token entropy")
    other.set(ylabel="nats", ylim=(0, 1.1 * max(entropy, default=1.0) or 1.0))
    handles, labels = axes.get_legend_handles_labels()
    more, others = other.get_legend_handles_labels()
    axes.legend([*handles, *more], [*labels, *others], loc="upper right", fontsize="small")


def _legend(axes: Any, **how: Any) -> None:
    """None for a chart without anything in it, which matplotlib warns of."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(**how)


def _width(places: Sequence[float]) -> float:
    return 0.9 * (places[1] - places[0]) if len(places) > 1 else 0.9


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
