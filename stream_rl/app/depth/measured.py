"""What a run's records say of the updates in a window. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from stream_rl.app.depth.figures import Figures
from stream_rl.app.depth.trials import Window
from stream_rl.observe.learner_time import learner_times
from stream_rl.observe.progress import evaluations
from stream_rl.observe.records import number, numbers, sum_numbers
from stream_rl.observe.summary import ordered


def measured(lines: Iterable[Mapping[str, Any]], evals: Iterable[Mapping[str, Any]], window: Window) -> Figures | None:
    """Figures of one run, out of its metrics.jsonl and eval.jsonl; None when it ended before the window began.

    A run that was stopped inside the window is measured over what it has of it.
    """
    records = ordered(lines)
    inside = slice(window.warmup, window.end)
    times, here = list(learner_times(records))[inside], records[inside]
    seconds = math.fsum(time.train_s for time in times)
    if not here or seconds <= 0:
        return None
    waits = {part: math.fsum(time.parts[f"{part}_wait"] for time in times) for part in ("rollout", "judge")}
    lags = sum_numbers(numbers(line, "lag", "histogram") for line in here)
    groups = sum(lags.values())
    devices = sum_numbers(numbers(line, "cost", "device_s") for line in here)
    successes = [s for line in here if (s := number(line, "success", "train")) is not None]
    held_out = [point.success for point in evaluations(evals) if point.version > window.end - 1]
    trained = sum_numbers(numbers(line, "tokens") for line in here).get("trained")
    count = len(here)
    return Figures(
        updates=count,
        update_s=seconds / count,
        updates_per_min=60.0 * count / seconds,
        trained_tokens_per_s=None if trained is None else trained / seconds,
        rollout_wait_s=waits["rollout"] / count,
        rollout_wait_share=waits["rollout"] / seconds,
        judge_wait_s=waits["judge"] / count,
        judge_wait_share=waits["judge"] / seconds,
        lag_mean=sum(int(lag) * n for lag, n in lags.items()) / groups if groups else None,
        lag_max=max((int(lag) for lag, n in lags.items() if n), default=None),
        device_s=math.fsum(devices.values()) if devices else None,
        success_train=math.fsum(successes) / len(successes) if successes else None,
        success_held_out=held_out[-1] if held_out else None,
    )
