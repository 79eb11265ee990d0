from __future__ import annotations

import msgspec
import numpy as np
import pytest

from learner.members import Member, member_of
from tests.unit.learner.builders import trajectory


def test_every_action_answered_the_observation_before_it() -> None:
    made = trajectory("g", 2, 1.0, turns=3, invalid_turns=[1])
    turns = tuple(
        msgspec.structs.replace(turn, observation=f"after {i}", reward=0.5 * i) for i, turn in enumerate(made.turns)
    )
    member = member_of(msgspec.structs.replace(made, turns=turns, first_prompt="start"))
    assert member.anchors == ("start", "after 0", "after 1")
    assert member.step_rewards.tolist() == [0.0, 0.5, 1.0]
    assert member.step_valid.tolist() == [True, False, True]
    assert (member.reward, member.valid, member.name) == (1.0, True, "g/2")


def test_a_trajectory_without_turns() -> None:
    member = member_of(trajectory("g", 0, 0.0, error="the world crashed"))
    assert not member.valid
    assert member.num_turns == len(member.step_rewards) == len(member.anchors) == 0


def test_fields_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match=r"g/1: 2 step rewards, 1 flags and 2 anchors"):
        Member(
            name="g/1",
            reward=0.0,
            valid=True,
            step_rewards=np.zeros(2),
            step_valid=np.ones(1, bool),
            anchors=("a", "b"),
        )
