"""How late an event loop comes to what is due: a call that blocks it shows here and nowhere else."""

from __future__ import annotations

import time
from collections.abc import Callable

import anyio

_PERIOD_S = 0.1


class LoopLag:
    """Asks to be woken every `period_s` and measures how late that is. A loop held up for longer is always seen."""

    def __init__(self, period_s: float = _PERIOD_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._period_s = period_s
        self._clock = clock
        self._total_s = self._largest_s = 0.0
        self._samples = 0

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            due = self._clock() + self._period_s
            await anyio.sleep(self._period_s)  # the timer is the instrument: nothing is waited for
            self.observe(self._clock() - due)

    def observe(self, late_s: float) -> None:
        """One timer was served this late. A clock that is coarser than the loop's may say a little too early."""
        late_s = max(0.0, late_s)
        self._total_s += late_s
        self._largest_s = max(self._largest_s, late_s)
        self._samples += 1

    def lap(self) -> dict[str, float | None]:
        """`mean_s` and `max_s` since the last lap; None where no timer was due."""
        total_s, largest_s, samples = self._total_s, self._largest_s, self._samples
        self._total_s = self._largest_s = 0.0
        self._samples = 0
        return {"mean_s": total_s / samples if samples else None, "max_s": largest_s if samples else None}
