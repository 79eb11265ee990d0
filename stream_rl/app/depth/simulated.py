"""What the discrete-event model says of the updates in a window. Pure."""

from __future__ import annotations

import statistics

from stream_rl.app.depth.figures import Figures
from stream_rl.app.depth.trials import Window
from stream_rl.config import Config
from stream_rl.simulate.model import simulate
from stream_rl.simulate.prediction import Prediction
from stream_rl.simulate.profile import Profile

SEEDS = 8  # simulated runs whose mean is the prediction: chance of its own is no part of it


def simulated(config: Config, profile: Profile, window: Window, base: Figures) -> Figures:
    """The prediction for `config`, over the same updates that are measured.

    `base` is what was measured of the run that gave the profile: its trained tokens of an update, and the devices that
    were held, are those of any depth. Raises `ConfigError` when the profile does not know one of the worlds.
    """
    seeds = range(config.seed, config.seed + SEEDS)
    ends = [simulate(config, profile, updates=window.end, seed=seed) for seed in seeds]
    begins = [simulate(config, profile, updates=window.warmup, seed=seed) for seed in seeds] if window.warmup else []

    def inside(name: str) -> float:
        """Mean over the window: what holds for all updates, less what holds for those before it."""
        whole = statistics.fmean(_value(p, name) for p in ends) * window.end
        before = statistics.fmean(_value(p, name) for p in begins) * window.warmup if begins else 0.0
        return max(0.0, whole - before) / window.updates

    update_s, rollout_wait_s, judge_wait_s = inside("update_s"), inside("rollout_wait_s"), inside("judge_wait_s")
    tokens = None if base.trained_tokens_per_s is None else base.trained_tokens_per_s * base.update_s
    devices = None if base.device_s is None else base.device_s / (base.updates * base.update_s)
    return Figures(
        updates=window.updates,
        update_s=update_s,
        updates_per_min=60.0 / update_s,
        trained_tokens_per_s=None if tokens is None else tokens / update_s,
        rollout_wait_s=rollout_wait_s,
        rollout_wait_share=rollout_wait_s / update_s,
        judge_wait_s=judge_wait_s,
        judge_wait_share=judge_wait_s / update_s,
        lag_mean=inside("lag_mean"),
        lag_max=max(p.lag_max for p in ends),
        device_s=None if devices is None else devices * update_s * window.updates,
    )


def _value(prediction: Prediction, name: str) -> float:
    return float(getattr(prediction, name))
