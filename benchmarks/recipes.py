"""The shipped configurations that the benchmarks compare, and the recipe of the plain loop they are compared with."""

from __future__ import annotations

from pathlib import Path

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
RECIPES = {"grpo": CONFIGS / "embedded-grpo.toml", "rised": CONFIGS / "embedded-rised.toml"}

# The loop that the embedded default was prototyped with: fixed, so that tuning the stream does not move its yardstick.
PLAIN_LOOP = {
    "grpo": (
        "groups.candidates=16",
        "groups.per_update=16",
        "groups.size=8",
        "learner.lr=5e-4",
        "learner.mini_batches=2",
    ),
    "rised": (
        "groups.candidates=32",
        "groups.per_update=16",
        "groups.size=8",
        "learner.lr=5e-4",
        "learner.mini_batches=2",
        "algorithm.distill_coef=0.1",
        "algorithm.hint_support=2",
        "algorithm.hint_top_k=4",
        "algorithm.steering=false",
        "algorithm.invalid_action_penalty=0.0",
    ),
}
