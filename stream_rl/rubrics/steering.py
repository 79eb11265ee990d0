"""Negative steering: which violations dominate an environment, and so enter later training prompts. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from stream_rl.rubrics.profile import Float64, GroupProfile


class Steering:
    """Moving rates of positives and violations of one environment.

    rate <- (1 - a) * rate + a * (rate of the newest group), starting from the first group's rates. A rubric is
    dominant while its violation rate is above its positive rate and above `floor`.
    """

    def __init__(self, num_rubrics: int, *, rate: float, floor: float, top: int) -> None:
        """`rate` a in (0, 1], `floor` in [0, 1], at most `top` rubrics at once."""
        self._rate = rate
        self._floor = floor
        self._top = top
        self.positive: Float64 = np.zeros(num_rubrics)
        self.violation: Float64 = np.zeros(num_rubrics)
        self._seen = False

    def observe(self, group: GroupProfile) -> None:
        """Take one group's rates in. A group without tags says nothing."""
        if group.num_tagged == 0:
            return
        a = self._rate if self._seen else 1.0
        self.positive = (1 - a) * self.positive + a * group.positive
        self.violation = (1 - a) * self.violation + a * group.violation
        self._seen = True

    def avoid(self, rubric_ids: Sequence[str]) -> tuple[str, ...]:
        """Dominant rubrics, the most violated first; ties in vocabulary order."""
        dominant = (self.violation > self.positive) & (self.violation > self._floor)
        order = sorted(np.flatnonzero(dominant), key=lambda i: (-self.violation[i], i))
        return tuple(rubric_ids[i] for i in order[: self._top])

    def state(self) -> str:
        """The rates, as text for the ledger."""
        return json.dumps([self._seen, self.positive.tolist(), self.violation.tolist()])

    def restore(self, text: str | None) -> None:
        """Go on from `state`'s text; None, or another vocabulary's rates, leaves the start values."""
        if text is None:
            return
        seen, positive, violation = json.loads(text)
        if len(positive) == len(self.positive):
            self._seen = bool(seen)
            self.positive = np.asarray(positive, np.float64)
            self.violation = np.asarray(violation, np.float64)
