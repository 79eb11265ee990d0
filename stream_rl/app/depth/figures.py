"""What is said of a depth: the same numbers measured and simulated."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import msgspec


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Means over the updates of a window. None: not known."""

    updates: int  # in the window
    update_s: float  # training seconds of an update
    updates_per_min: float
    trained_tokens_per_s: float | None = None
    rollout_wait_s: float  # of an update: the learner had nothing to train
    rollout_wait_share: float  # of the learner's training time
    judge_wait_s: float  # of an update: only verdicts were missing
    judge_wait_share: float  # of the learner's training time
    lag_mean: float | None  # of trained groups, in updates
    lag_max: int | None  # of any trained group
    device_s: float | None = None  # of all roles together, in the window: held, used or not
    success_train: float | None = None  # of the rollouts in the window
    success_held_out: float | None = None  # at the end of the run
    speed_up: float | None = None  # update_s at the smallest depth, over that here: mean over repeats
    speed_up_low: float | None = None  # of any repeat; None with a single one
    speed_up_high: float | None = None  # of any repeat


def mean(figures: Sequence[Figures]) -> Figures:
    """Of one or more repeats; what is not known in one of them is not known. `lag_max` is the largest."""
    lags = [f.lag_max for f in figures]
    return Figures(
        updates=sum(f.updates for f in figures),
        update_s=statistics.fmean(f.update_s for f in figures),
        updates_per_min=statistics.fmean(f.updates_per_min for f in figures),
        trained_tokens_per_s=_mean([f.trained_tokens_per_s for f in figures]),
        rollout_wait_s=statistics.fmean(f.rollout_wait_s for f in figures),
        rollout_wait_share=statistics.fmean(f.rollout_wait_share for f in figures),
        judge_wait_s=statistics.fmean(f.judge_wait_s for f in figures),
        judge_wait_share=statistics.fmean(f.judge_wait_share for f in figures),
        lag_mean=_mean([f.lag_mean for f in figures]),
        lag_max=max((lag for lag in lags if lag is not None), default=None),
        device_s=None if any(f.device_s is None for f in figures) else math.fsum(f.device_s or 0.0 for f in figures),
        success_train=_mean([f.success_train for f in figures]),
        success_held_out=_mean([f.success_held_out for f in figures]),
    )


def with_speed_up(figures: Figures, ratios: Sequence[float]) -> Figures:
    """The same with its speed-up: `ratios` are those of its repeats, each against the run with the same seed."""
    if not ratios:
        return figures
    several = len(ratios) > 1
    return msgspec.structs.replace(
        figures,
        speed_up=statistics.fmean(ratios),
        speed_up_low=min(ratios) if several else None,
        speed_up_high=max(ratios) if several else None,
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known and len(known) == len(values) else None
