"""Held-out success over training time: intervals, gain, and when a threshold was reached. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from stream_rl.observe.records import number

Z_95 = 1.96  # standard errors on either side of a 95 % interval


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A mean with its 95 % interval."""

    value: float  # the mean
    low: float  # lower end
    high: float  # upper end


class Evaluated(msgspec.Struct, frozen=True, kw_only=True):
    """One held-out evaluation."""

    version: int  # of the policy, in updates
    train_s: float  # training seconds until then; evaluations do not count
    success: float  # held-out success rate, 0 to 1
    stderr: float  # standard error of it, tasks as clusters


def evaluations(records: Iterable[Mapping[str, Any]]) -> tuple[Evaluated, ...]:
    """The evaluations of an eval.jsonl by version; of one made twice, after a resume, the newer counts."""
    found: dict[int, Evaluated] = {}
    for record in records:
        version, train_s = number(record, "step"), number(record, "train_s")
        success = number(record, "success", "overall")
        if version is not None and train_s is not None and success is not None:
            stderr = number(record, "stderr") or 0.0
            found[int(version)] = Evaluated(version=int(version), train_s=train_s, success=success, stderr=stderr)
    return tuple(found[version] for version in sorted(found))


def estimate(value: float, stderr: float, *, low: float, high: float) -> Estimate:
    """value +- 1.96 standard errors, cut at `low` and `high`."""
    half = Z_95 * stderr
    return Estimate(value=value, low=max(low, value - half), high=min(high, value + half))


def rate(point: Evaluated) -> Estimate:
    """A success rate with its interval."""
    return estimate(point.success, point.stderr, low=0.0, high=1.0)


def gain(first: Evaluated, last: Evaluated) -> Estimate:
    """last - first. Both are taken on the same tasks; ignoring that makes the interval too wide, not too narrow."""
    stderr = math.hypot(first.stderr, last.stderr)
    return estimate(last.success - first.success, stderr, low=-1.0, high=1.0)


def seconds_to(points: Sequence[Evaluated], threshold: float) -> float | None:
    """Training seconds at which success first reached `threshold`, linear between evaluations; None if it never did.

    >>> a = Evaluated(version=0, train_s=0.0, success=0.2, stderr=0.0)
    >>> b = Evaluated(version=10, train_s=30.0, success=0.8, stderr=0.0)
    >>> seconds_to([a, b], 0.5)
    15.0
    """
    before: Evaluated | None = None
    for point in points:
        if point.success >= threshold:
            if before is None:
                return point.train_s
            frac = (threshold - before.success) / (point.success - before.success)
            return before.train_s + frac * (point.train_s - before.train_s)
        before = point
    return None
