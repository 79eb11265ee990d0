"""95 % intervals of means over few seeds, by Student's t distribution. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from stream_rl.observe.progress import Estimate

# 0.975 quantiles of Student's t by degrees of freedom, from 1 (NIST/SEMATECH e-Handbook, 1.3.6.7.2).
_T_975 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


def t_975(degrees: float) -> float:
    """The 0.975 quantile; degrees of freedom are rounded down, and past 30 that of 30 is kept: never too narrow.

    >>> t_975(1), t_975(2.9)
    (12.706, 4.303)
    """
    if degrees < 1:
        raise ValueError(f"{degrees} degrees of freedom have no interval")
    return _T_975[min(int(degrees), len(_T_975)) - 1]


def mean_of(values: Sequence[float]) -> Estimate | None:
    """The mean with its interval; None for fewer than two values, whose spread nobody knows."""
    if len(values) < 2:
        return None
    half = t_975(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return _around(statistics.fmean(values), half)


def paired_difference(first: Sequence[float], second: Sequence[float]) -> Estimate | None:
    """Mean of second - first, value by value (same seed, same tasks). None for fewer than two pairs."""
    return mean_of([b - a for a, b in zip(first, second, strict=True)])


def difference(first: Sequence[float], second: Sequence[float]) -> Estimate | None:
    """Mean of second - mean of first, by Welch's interval (unequal variances). None for fewer than two of either."""
    if len(first) < 2 or len(second) < 2:
        return None
    a, b = (statistics.variance(values) / len(values) for values in (first, second))
    change = statistics.fmean(second) - statistics.fmean(first)
    if a + b == 0.0:
        return _around(change, 0.0)
    share = a / (a + b)  # Welch and Satterthwaite's degrees of freedom, in a form that cannot underflow
    degrees = 1 / (share**2 / (len(first) - 1) + (1 - share) ** 2 / (len(second) - 1))
    return _around(change, t_975(degrees) * math.sqrt(a + b))


def _around(value: float, half: float) -> Estimate:
    return Estimate(value=value, low=value - half, high=value + half)
