"""The learner's time in one update, apart from what is no training: evaluation, pauses, the start of engines. Pure.

A metrics line counts all of it into `other_s`, so that its parts add up to the wall time, and names it in
`learner_other`. Lines of earlier releases named nothing and counted the start of the engines into `rollout_wait_s`;
there the training clock (`train_s` of the line), which stands still in both, tells them apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from stream_rl.observe.records import number, numbers

PARTS = ("rollout_wait", "judge_wait", "prox", "teacher", "train", "publish", "other")
_CLOCK_SKEW_FRAC = 0.02  # learner and orchestrator read their clocks at the two ends of a message


class LearnerTime(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of one update."""

    parts: dict[str, float]  # seconds by name of `PARTS`; they add up to `train_s`
    evaluation_s: float  # the learner stood still for a held-out evaluation
    startup_s: float  # it waited for producers to start
    paused_s: float = 0.0  # it waited because people had paused the run

    @property
    def train_s(self) -> float:
        """Training seconds."""
        return sum(self.parts.values())

    @property
    def wait_share(self) -> float | None:
        """Share of the training time in which the learner waited for rollouts."""
        return self.parts["rollout_wait"] / self.train_s if self.train_s > 0 else None


def learner_time(line: Mapping[str, Any], train_s_before: float | None) -> LearnerTime:
    """The time of the update in `line`; `train_s_before` is the `train_s` of the line before it, None if unknown."""
    given = numbers(line, "learner")
    parts = {part: given.get(f"{part}_s", 0.0) for part in PARTS}
    own = numbers(line, "learner_other")
    if "evaluation_s" in own:
        return _named(parts, own)
    total = sum(parts.values())
    now = number(line, "train_s")
    idle = 0.0
    if now is not None and train_s_before is not None:
        idle = total - (now - train_s_before)
    if idle <= _CLOCK_SKEW_FRAC * total:
        idle = 0.0
    evaluation = min(idle, max(0.0, parts["other"] - sum(own.values())))
    startup = min(idle - evaluation, parts["rollout_wait"])
    parts["other"] -= evaluation
    parts["rollout_wait"] -= startup
    return LearnerTime(parts=parts, evaluation_s=evaluation, startup_s=startup)


def _named(parts: dict[str, float], own: Mapping[str, float]) -> LearnerTime:
    """Of a line that says what is inside its `other_s`."""
    taken = {}
    for name in ("evaluation_s", "startup_s", "paused_s"):
        taken[name] = min(parts["other"], own.get(name, 0.0))
        parts["other"] -= taken[name]
    return LearnerTime(parts=parts, **taken)


def learner_times(lines: Sequence[Mapping[str, Any]]) -> Iterator[LearnerTime]:
    """The time of every update. `lines` are all of a run, in order, so training time before the first is 0."""
    before: float | None = 0.0
    for line in lines:
        yield learner_time(line, before)
        before = number(line, "train_s")
