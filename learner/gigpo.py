"""Step advantages: how much better an action did than the group's other actions in the same state.

GiGPO, arXiv:2505.10978. Axis `rows`: every turn of every valid member of one group, members in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def discounted_returns(step_rewards: Floats, gamma: float) -> Floats:
    """R_t = r_t + gamma * R_{t+1} of one trajectory, [turns] to [turns]. Eq. 5.

    >>> discounted_returns(np.array([0.0, 1.0, 2.0]), 0.5).tolist()
    [1.0, 2.0, 2.0]
    """
    out = np.empty(len(step_rewards), dtype=np.float64)
    following = 0.0
    for turn in reversed(range(len(step_rewards))):
        following = float(step_rewards[turn]) + gamma * following
        out[turn] = following
    return out


def step_advantages(returns: Floats, anchors: Sequence[str], estimate: Callable[[Floats], Floats]) -> Floats:
    """`estimate` within each step group: the rows whose anchor observations are equal. Eq. 6 and 7.

    `returns` [rows], one anchor a row, result [rows]. `estimate` maps the returns of one step group [n] to advantages
    [n], and must give 0 for a single row: an action nobody else tried in that state has nothing to be compared with.
    """
    step_groups: dict[str, list[int]] = {}
    for row, anchor in enumerate(anchors):
        step_groups.setdefault(anchor, []).append(row)
    out = np.zeros(len(returns), dtype=np.float64)
    for rows in step_groups.values():
        out[rows] = estimate(returns[rows])
    return out
