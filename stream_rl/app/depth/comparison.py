"""All runs side by side: one row a depth, repeats put together. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from stream_rl.app.depth.figures import Figures, mean, with_speed_up


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one run."""

    depth: int
    repeat: int
    measured: Figures
    simulated: Figures | None  # None: the run of the smallest depth with its seed is missing


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One depth."""

    depth: int
    repeats: int  # runs
    measured: Figures
    simulated: Figures | None

    @property
    def of_predicted(self) -> float | None:
        """Measured speed-up over the predicted one."""
        if self.simulated is None or self.measured.speed_up is None or self.simulated.speed_up is None:
            return None
        return self.measured.speed_up / self.simulated.speed_up


def compare(outcomes: Sequence[Outcome]) -> list[Row]:
    """Rows by depth. Each run is compared with the one of the smallest depth that has its seed.

    >>> compare([])
    []
    """
    if not outcomes:
        return []
    base = min(outcome.depth for outcome in outcomes)
    measured = {o.repeat: o.measured for o in outcomes if o.depth == base}
    simulated = {o.repeat: o.simulated for o in outcomes if o.depth == base and o.simulated}
    rows = []
    for depth in sorted({outcome.depth for outcome in outcomes}):
        here = [outcome for outcome in outcomes if outcome.depth == depth]
        predicted = {o.repeat: o.simulated for o in here if o.simulated}
        rows.append(
            Row(
                depth=depth,
                repeats=len(here),
                measured=_row({o.repeat: o.measured for o in here}, measured),
                simulated=_row(predicted, simulated) if predicted else None,
            )
        )
    return rows


def _row(here: Mapping[int, Figures], base: Mapping[int, Figures]) -> Figures:
    ratios = [base[repeat].update_s / figures.update_s for repeat, figures in here.items() if repeat in base]
    return with_speed_up(mean(list(here.values())), ratios)


def as_json(rows: Iterable[Row], recommended: int | None, reason: str) -> list[dict[str, Any]]:
    """Plain data: one entry a depth, the same names in `measured` and `simulated`; the reason where it belongs."""
    return [
        {**msgspec.to_builtins(row), "recommended": row.depth == recommended}
        | ({"reason": reason} if row.depth == recommended else {})
        for row in rows
    ]
