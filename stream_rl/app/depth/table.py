"""The comparison for people. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from stream_rl.app.depth.comparison import Row
from stream_rl.app.depth.figures import Figures
from stream_rl.app.depth.trials import Window

_HEADS = (
    "depth", "", "updates/min", "tokens/s", "speed-up", "rollout wait", "judge wait", "lag", "success", "held out",
    "device-s",
)  # fmt: skip


def table(rows: Sequence[Row]) -> str:
    """Two lines a depth: what was measured, and what the simulation predicts."""
    cells: list[tuple[str, ...]] = [_HEADS]
    for row in rows:
        cells.append((str(row.depth), "measured", *_cells(row.measured)))
        if row.simulated is not None:
            cells.append(("", "simulated", *_cells(row.simulated)))
    widths = [max(len(line[i]) for line in cells) for i in range(len(_HEADS))]
    lines = []
    for line in cells:
        left = f"{line[0]:>{widths[0]}} {line[1]:<{widths[1]}}"
        lines.append(
            "  ".join((left, *(f"{text:>{w}}" for text, w in zip(line[2:], widths[2:], strict=True)))).rstrip()
        )
    return "\n".join(lines)


def notes(rows: Sequence[Row], window: Window) -> list[str]:
    """What has to be known to read the table."""
    if not rows:
        return []
    base = rows[0].depth
    told = [f"speed-up over depth {base}" + (", lowest and highest of its repeats" if rows[0].repeats > 1 else "")]
    pairs = [
        f"depth {row.depth}: {share:.0%}" for row in rows[1:] if (share := row.of_predicted) is not None
    ]  # the first row is the yardstick
    if pairs:
        told.append(f"measured speed-up, of the predicted one: {', '.join(pairs)}")
    told += [
        f"depth {row.depth} was stopped: {row.measured.updates} updates of {row.repeats * window.updates}"
        for row in rows
        if row.measured.updates < row.repeats * window.updates
    ]
    return told


def _cells(f: Figures) -> tuple[str, ...]:
    lag = "-" if f.lag_mean is None else f"{f.lag_mean:.2f}, max {f.lag_max}"
    return (
        f"{f.updates_per_min:.2f}",
        _or_dash(f.trained_tokens_per_s, ",.0f"),
        _speed_up(f),
        f"{f.rollout_wait_s:.2f} s {f.rollout_wait_share:4.0%}",
        f"{f.judge_wait_s:.2f} s {f.judge_wait_share:4.0%}",
        lag,
        _or_dash(f.success_train, ".1%"),
        _or_dash(f.success_held_out, ".1%"),
        _or_dash(f.device_s, ",.0f"),
    )


def _speed_up(f: Figures) -> str:
    if f.speed_up is None:
        return "-"
    apart = f.speed_up_low is not None and f.speed_up_low != f.speed_up_high
    spread = f" ({f.speed_up_low:.2f} to {f.speed_up_high:.2f})" if apart else ""
    return f"{f.speed_up:.2f}{spread}"


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
