"""The picture of a comparison: learning curves with intervals, and where the time of an update went."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from stream_rl.observe.compare import Comparison, Contender, CurvePoint, Group, mean_curve, members_of
from stream_rl.observe.learner_time import PARTS
from stream_rl.observe.theme import series_colour, state_colour, styled, write_png


def draw(found: Comparison, runs: Sequence[Contender], path: Path) -> Path:
    """Held-out success over training seconds and over generated tokens, and where an update's time went."""
    with styled():
        return write_png(_figure(found, runs), path)


def _figure(found: Comparison, runs: Sequence[Contender]) -> Any:
    from matplotlib.figure import Figure  # heavy: half a second

    figure = Figure(figsize=(9, 11), layout="constrained")
    seconds, tokens, time = figure.subplots(3, 1, height_ratios=[3, 3, 2])
    for place, group in enumerate(found.groups):
        members, colour = members_of(group, runs), series_colour(place)
        _draw_curves(seconds, group, members, colour, lambda point: point.train_s)
        _draw_curves(tokens, group, members, colour, lambda point: point.generated_tokens)
    seconds.set(title="held-out success, mean and 95 % interval over seeds", xlabel="training seconds")
    tokens.set(title="the same at equal generation", xlabel="tokens generated for training")
    for axes in (seconds, tokens):
        axes.set(ylabel="success rate", ylim=(0, 1))
        axes.grid(alpha=0.3)
        axes.legend(loc="upper left", fontsize="small")
    _draw_time(time, found.groups)
    return figure


def _draw_curves(
    axes: Any, group: Group, members: Sequence[Contender], colour: str, x: Callable[[CurvePoint], float]
) -> None:
    for run in members:
        axes.plot([x(p) for p in run.curve], [p.success for p in run.curve], color=colour, alpha=0.3, linewidth=0.8)
    mean = mean_curve(members)
    at, height = [x(point) for point, _ in mean], [point.success for point, _ in mean]
    axes.plot(at, height, color=colour, marker="o", label=f"{group.label} ({len(members)} runs)")
    spread = [(x(point), e.low, e.high) for point, e in mean if e is not None]
    if spread:
        axes.fill_between(*zip(*spread, strict=True), color=colour, alpha=0.15, linewidth=0)


def _draw_time(axes: Any, groups: Sequence[Group]) -> None:
    labels = [group.label for group in groups]
    left = [0.0] * len(groups)
    for part in PARTS:
        widths = [group.learner_s.get(part, 0.0) for group in groups]
        if any(widths):
            axes.barh(labels, widths, left=left, color=state_colour(part), label=part.replace("_", " "))
            left = [a + b for a, b in zip(left, widths, strict=True)]
    axes.invert_yaxis()
    axes.set(title="where the learner's time went", xlabel="training seconds of an update")
    if any(left):
        axes.legend(ncols=4, fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.25))
