"""The shipped configurations that the benchmarks compare."""

from __future__ import annotations

from pathlib import Path

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
RECIPES = {"grpo": CONFIGS / "embedded-grpo.toml", "rised": CONFIGS / "embedded.toml"}
