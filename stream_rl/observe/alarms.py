"""Collapse has a name: limits on what a policy does, and what to change when they are passed. Pure.

Distillation can collapse a policy while its own signal still looks healthy, so nothing here reads D_t.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from stream_rl.config import Alarms as AlarmLimits


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """One limit passed for `patience` updates in a row."""

    name: str  # "entropy", "all_fail" or "cut_actions"
    step: int  # update at which it was raised
    value: float  # what was measured
    limit: float  # what was allowed
    advice: str  # what to change


_ADVICE = {
    "entropy": "the policy is nearly deterministic: lower learner.lr, or set algorithm.entropy_coef to 0.001",
    "all_fail": "almost every group fails as a whole, so GRPO has no signal: go back to a checkpoint from before the "
    "fall, or make the tasks easier",
    "cut_actions": "actions run into generate.max_tokens before they end: raise generate.max_tokens if good actions "
    "are that long, else lower learner.lr",
}
# What to lower first, by self-distillation. `opsd` is a loss alone, whose weight AdamW divides out.
_FIRST = {
    "rised": "; with self-distillation on, first lower algorithm.distill_coef",
    "sdar": "; with self-distillation on, first lower algorithm.distill_coef",
    "orsd": "; with self-distillation on, first lower algorithm.orsd_weight",
    "rlsd": "; with self-distillation on, first lower algorithm.rlsd_mix",
    "opsd": "; self-distillation alone drifts with its teacher: teacher = 'frozen' or 'ema' holds it",
}


class AlarmWatch:
    """Counts updates past each limit; raises each alarm once per excursion."""

    def __init__(self, limits: AlarmLimits, *, distillation: str = "none") -> None:
        """`distillation`: the self-teacher that is on, which is then the first suspect."""
        self._limits = limits
        self._more = _FIRST.get(distillation, "")
        self._run: dict[str, int] = dict.fromkeys(_ADVICE, 0)

    def observe(self, line: Mapping[str, Any]) -> list[Alarm]:
        """Alarms that this metrics line raises."""
        limits = self._limits
        readings = {
            "entropy": (line.get("entropy"), limits.entropy_floor, False),
            "all_fail": (line.get("zero_variance", {}).get("all_fail"), limits.all_fail_share, True),
            "cut_actions": (line.get("cut_share"), limits.cut_share, True),
        }
        raised = []
        for name, (value, limit, above) in readings.items():
            past = value is not None and (value > limit if above else value < limit)
            self._run[name] = self._run[name] + 1 if past else 0
            if self._run[name] == limits.patience and value is not None:
                raised.append(
                    Alarm(
                        name=name,
                        step=int(line["step"]),
                        value=float(value),
                        limit=limit,
                        advice=_ADVICE[name] + self._more,
                    )
                )
        return raised
