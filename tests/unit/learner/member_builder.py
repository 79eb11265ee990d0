"""Members of a group, without trajectories around them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from learner.members import Member


def member(
    reward: float,
    *,
    turns: int = 1,
    invalid: Sequence[int] = (),
    anchors: Sequence[str] | None = None,
    step_rewards: Sequence[float] | None = None,
    valid: bool = True,
    name: str = "",
) -> Member:
    """`turns` turns, or one an anchor; by default none of them shares its anchor's text with another of the member."""
    made = tuple(f"state {i}" for i in range(turns)) if anchors is None else tuple(anchors)
    return Member(
        name=name,
        reward=reward,
        valid=valid,
        step_rewards=np.zeros(len(made)) if step_rewards is None else np.array(step_rewards, dtype=np.float64),
        step_valid=np.array([i not in invalid for i in range(len(made))], dtype=np.bool_),
        anchors=made,
    )
