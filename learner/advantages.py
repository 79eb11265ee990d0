"""Trajectory advantages: how much better a rollout did than the rest of its group.

Each function takes the outcomes of one group, `rewards` [G] and `valid` [G], and returns float64 [G]. Invalid members
are in no statistic and get 0; with fewer than two valid members, or no spread among them, everybody gets 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

Advantages = npt.NDArray[np.float64]
Estimator = Callable[[Sequence[float], Sequence[bool]], Advantages]


def grpo(rewards: Sequence[float], valid: Sequence[bool]) -> Advantages:
    """(r - mean) / (std + 1e-6) with the unbiased standard deviation. DeepSeekMath, arXiv:2402.03300, eq. 4.

    >>> grpo([1.0, 0.0], [True, True]).round(4).tolist()
    [0.7071, -0.7071]
    """
    return _among_valid(rewards, valid, lambda r: (r - r.mean()) / (r.std(ddof=1) + 1e-6))


def dr_grpo(rewards: Sequence[float], valid: Sequence[bool]) -> Advantages:
    """r - mean. Its loss is divided by a constant, not by the number of loss tokens. Dr. GRPO, arXiv:2503.20783."""
    return _among_valid(rewards, valid, lambda r: r - r.mean())


def rloo(rewards: Sequence[float], valid: Sequence[bool]) -> Advantages:
    """r - mean of the others. RLOO, arXiv:2402.14740, eq. 9."""
    return _among_valid(rewards, valid, lambda r: r - (r.sum() - r) / (len(r) - 1))


ESTIMATORS: Mapping[str, Estimator] = {"grpo": grpo, "dr_grpo": dr_grpo, "rloo": rloo}


def _among_valid(
    rewards: Sequence[float], valid: Sequence[bool], estimate: Callable[[Advantages], Advantages]
) -> Advantages:
    if len(rewards) != len(valid):
        raise ValueError(f"{len(rewards)} rewards for {len(valid)} members")
    keep = np.asarray(valid, dtype=np.bool_)
    members = np.asarray(rewards, dtype=np.float64)[keep]
    if not np.isfinite(members).all():
        raise ValueError(f"the reward of a valid member is not finite: {list(rewards)}")
    out = np.zeros(len(keep), dtype=np.float64)
    # Compared for equality, not by std > 0: rounding gives equal rewards a tiny std, which 1e-6 would blow up.
    if len(members) > 1 and members.min() != members.max():
        out[keep] = estimate(members)
    return out
