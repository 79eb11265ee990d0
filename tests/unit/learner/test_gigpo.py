from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learner.advantages import dr_grpo, grpo, turn_advantages
from learner.gigpo import discounted_returns, step_advantages
from learner.members import Member
from stream_rl.config import Algorithm
from tests.unit.learner.member_builder import member

# Two episodes that pass the same door into the same hall; one turns to the exit there, the other looks around first.
FOUND = member(1.0, anchors=("door", "hall"), step_rewards=(0, 1))
LOST = member(0.0, anchors=("door", "hall", "hall"), step_rewards=(0, 0, 0))


def gigpo(
    *,
    weight: float = 1.0,
    gamma: float = 0.5,
    norm: str = "mean",
    over: str = "trajectories",
    penalty: float = 0.0,
    before: bool = False,
) -> Algorithm:
    return Algorithm(
        advantage="gigpo",
        gigpo_weight=weight,
        gigpo_gamma=gamma,
        gigpo_norm=norm,  # type: ignore[arg-type]
        stats_over=over,  # type: ignore[arg-type]
        invalid_action_penalty=penalty,
        penalty_before_stats=before,
    )


def check(members: list[Member], algorithm: Algorithm, *expected: list[float]) -> None:
    for got, wanted in zip(turn_advantages(members, algorithm), expected, strict=True):
        assert got == pytest.approx(wanted, abs=1e-4)


def test_returns_are_discounted_from_the_end() -> None:
    # 4, then 2 + 0.5 * 4 = 4, then 1 + 0.5 * 4 = 3
    assert discounted_returns(np.array([1.0, 2.0, 4.0]), 0.5).tolist() == [3.0, 4.0, 4.0]
    assert discounted_returns(np.array([]), 0.5).tolist() == []


@pytest.mark.parametrize(("gamma", "expected"), [(0.0, [1.0, 0.0, 2.0]), (1.0, [3.0, 2.0, 2.0])])
def test_the_ends_of_the_discount(gamma: float, expected: list[float]) -> None:
    assert discounted_returns(np.array([1.0, 0.0, 2.0]), gamma).tolist() == expected


def test_rows_are_compared_with_those_of_the_same_anchor_only() -> None:
    returns = np.array([4.0, 1.0, 2.0, 7.0, 3.0])
    # a: 4, 2, 3, mean 3; b: 1, 7, mean 4
    assert step_advantages(returns, "ababa", dr_grpo).tolist() == [1, -3, -1, 3, 0]


def test_an_action_nobody_else_tried_in_its_state_gets_zero() -> None:
    for estimate in (dr_grpo, grpo):
        assert step_advantages(np.array([5.0, 1.0, 2.0]), ("alone", "a", "a"), estimate)[0] == 0


def test_mean_centres_the_episode_and_the_step() -> None:
    # Episode: 1, 0 -> +0.5, -0.5. Returns: 0.5, 1 and 0, 0, 0.
    # door: 0.5, 0, mean 1/4 -> +1/4, -1/4. hall: 1, 0, 0, mean 1/3 -> +2/3, -1/3, -1/3.
    check([FOUND, LOST], gigpo(), [0.75, 0.5 + 2 / 3], [-0.75, -0.5 - 1 / 3, -0.5 - 1 / 3])


def test_mean_std_standardises_the_episode_and_the_step() -> None:
    # Two different numbers standardise to +-1/sqrt(2) = 0.7071: episode and door.
    # hall: deviations 2/3, -1/3, -1/3; variance (4 + 1 + 1) / 9 / 2 = 1/3; std 0.57735 -> 1.1547, -0.57735 twice.
    # Weight 2: 0.7071 + 1.4142 = 2.1213; 0.7071 + 2.3094 = 3.0165; -0.7071 - 1.1547 = -1.8618.
    check([FOUND, LOST], gigpo(weight=2, norm="mean_std"), [2.1213, 3.0165], [-2.1213, -1.8618, -1.8618])


def test_statistics_over_steps_concern_the_episode_part() -> None:
    # Rows 1, 1, 0, 0, 0 have mean 0.4: episode +0.6, -0.4; the step part is that of the test of "mean".
    check([FOUND, LOST], gigpo(over="steps"), [0.85, 0.6 + 2 / 3], [-0.65, -0.4 - 1 / 3, -0.4 - 1 / 3])


def test_a_penalty_after_the_statistics_moves_its_own_turn_only() -> None:
    stumbled = member(0.0, anchors=LOST.anchors, step_rewards=(0, 0, 0), invalid=[1])
    check([FOUND, stumbled], gigpo(penalty=0.3), [0.75, 0.5 + 2 / 3], [-0.75, -0.5 - 1 / 3 - 0.3, -0.5 - 1 / 3])


def test_a_penalty_before_the_statistics_enters_row_and_return() -> None:
    stumbled = member(0.0, anchors=LOST.anchors, step_rewards=(0, 0, 0), invalid=[1])
    # Rows 1, 1, 0, -0.3, 0 have mean 0.34: 0.66, 0.66, -0.34, -0.64, -0.34.
    # door is untouched, for the penalty does not reach earlier turns: +-1/4.
    # hall: 1, -0.3, 0, mean 0.7/3 = 0.23333: 0.76667, -0.53333, -0.23333.
    check(
        [FOUND, stumbled],
        gigpo(over="steps", penalty=0.3, before=True),
        [0.91, 1.42667],
        [-0.59, -1.17333, -0.57333],
    )


def test_a_penalty_before_statistics_over_trajectories() -> None:
    stumbled = member(0.0, anchors=LOST.anchors, step_rewards=(0, 0, 0), invalid=[1])
    # Rewards 1, -0.3: +-0.65. Steps as above.
    check(
        [FOUND, stumbled],
        gigpo(penalty=0.3, before=True),
        [0.9, 1.41667],
        [-0.9, -1.18333, -0.88333],
    )


def test_weight_zero_is_the_episode_part() -> None:
    check([FOUND, LOST], gigpo(weight=0), [0.5, 0.5], [-0.5] * 3)


def test_an_equal_outcome_still_tells_steps_apart() -> None:
    slow = member(1.0, anchors=("door", "hall", "hall"), step_rewards=(0, 0, 1))
    # No spread among the rewards. Returns 0.5, 1 and 0.25, 0.5, 1. door: mean 0.375; hall: 1, 0.5, 1, mean 5/6.
    check([FOUND, slow], gigpo(), [0.125, 1 / 6], [-0.125, -1 / 3, 1 / 6])


def test_an_invalid_member_shares_no_anchor() -> None:
    broken = member(9.0, anchors=("door",), step_rewards=(float("nan"),), valid=False)
    found, lost = turn_advantages([FOUND, LOST], gigpo())
    got = turn_advantages([FOUND, broken, LOST], gigpo())
    assert [a.tolist() for a in got] == [found.tolist(), [0.0], lost.tolist()]


def test_a_member_is_not_compared_with_itself() -> None:
    assert turn_advantages([LOST], gigpo())[0].tolist() == [0.0] * 3
    again = member(1.0, anchors=("hall", "hall"), step_rewards=(0, 1))
    assert turn_advantages([again], gigpo())[0].tolist() == [0.0, 0.0]


def test_a_step_reward_that_is_no_number_is_an_error() -> None:
    bad = member(0.0, anchors=("a",), step_rewards=(float("inf"),), name="g/1")
    with pytest.raises(ValueError, match=r"member 1 \(g/1\) is valid, but a step reward is not finite: \[inf\]"):
        turn_advantages([FOUND, bad], gigpo())
    assert turn_advantages([FOUND, bad], Algorithm())[1] == pytest.approx([-(2**-0.5)], abs=1e-5)


STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(-2, 2)), max_size=4)
GROUPS = st.lists(STEPS, max_size=5).map(
    lambda group: [
        member(float(sum(r for _, r in steps)), anchors=[a for a, _ in steps], step_rewards=[r for _, r in steps])
        for steps in group
    ]
)
VARIANTS = st.builds(gigpo, norm=st.sampled_from(["mean", "mean_std"]), over=st.sampled_from(["trajectories", "steps"]))


@given(GROUPS, VARIANTS)
@settings(deadline=None, max_examples=40)
def test_the_words_of_an_observation_do_not_matter(members: list[Member], algorithm: Algorithm) -> None:
    renamed = [
        member(m.reward, anchors=[f"You see {ord(a)}." for a in m.anchors], step_rewards=m.step_rewards.tolist())
        for m in members
    ]
    for one, other in zip(turn_advantages(members, algorithm), turn_advantages(renamed, algorithm), strict=True):
        assert one.tolist() == other.tolist()


@given(GROUPS, VARIANTS)
@settings(deadline=None, max_examples=40)
def test_scaling_all_rewards(members: list[Member], algorithm: Algorithm) -> None:
    scaled = [member(4 * m.reward, anchors=m.anchors, step_rewards=(4 * m.step_rewards).tolist()) for m in members]
    factor = 4 if algorithm.gigpo_norm == "mean" else 1
    for one, other in zip(turn_advantages(members, algorithm), turn_advantages(scaled, algorithm), strict=True):
        assert other == pytest.approx(factor * one, abs=1e-3)


@given(st.lists(st.lists(st.sampled_from("abc"), max_size=4), max_size=5), VARIANTS)
@settings(deadline=None, max_examples=40)
def test_a_group_that_failed_everywhere_gets_exactly_zero(anchors: list[list[str]], algorithm: Algorithm) -> None:
    members = [member(0.0, anchors=a, step_rewards=[0.0] * len(a)) for a in anchors]
    assert all((a == 0).all() for a in turn_advantages(members, algorithm))
