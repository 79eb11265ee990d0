"""A member: what group statistics need to know of one trajectory."""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from stream_rl.types import BoolArray, Trajectory


class Member(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One trajectory of a group, reduced to outcome, step rewards and the states it acted in.

    Raises `ValueError` when the `[turns]` fields differ in length.

    >>> Member(
    ...     reward=1.0, valid=True, step_rewards=np.array([0.0, 1.0]), step_valid=np.array([True, True]),
    ...     anchors=("a closed door", "an open door"),
    ... ).num_turns
    2
    """

    reward: float  # outcome of the whole trajectory; means nothing when it is not valid
    valid: bool  # whether it counts in group statistics
    step_rewards: npt.NDArray[np.float64]  # [turns] the world's reward of each action
    step_valid: BoolArray  # [turns] the world took the action
    anchors: tuple[str, ...]  # [turns] the observation each action answered
    name: str = ""  # trajectory id, for error messages

    def __post_init__(self) -> None:
        if not len(self.step_rewards) == len(self.step_valid) == len(self.anchors):
            raise ValueError(
                f"member {self.name or '(unnamed)'}: {len(self.step_rewards)} step rewards, "
                f"{len(self.step_valid)} flags and {len(self.anchors)} anchors must be one a turn"
            )

    @property
    def num_turns(self) -> int:
        """Actions taken."""
        return len(self.anchors)


def member_of(trajectory: Trajectory) -> Member:
    """The member `trajectory` is in its group.

    The first action answered the world's first observation, without any guidance shown with it, so that rollouts
    with and without guidance share their first anchor; every later action answered the observation before it.
    """
    turns = trajectory.turns
    return Member(
        name=trajectory.id,
        reward=trajectory.reward,
        valid=trajectory.valid,
        step_rewards=np.array([turn.reward for turn in turns], dtype=np.float64),
        step_valid=np.array([turn.valid for turn in turns], dtype=np.bool_),
        anchors=(trajectory.first_prompt, *(turn.observation for turn in turns))[: len(turns)],
    )
