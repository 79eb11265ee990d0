from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learner.advantages import ESTIMATORS, dr_grpo, grpo, rloo, turn_advantages
from learner.members import Member
from stream_rl.config import Algorithm
from tests.unit.learner.member_builder import member

VALID4 = [True] * 4


def test_grpo_uses_the_unbiased_deviation() -> None:
    # mean 1/4; deviations 3/4, -1/4 x 3; variance (9/16 + 3/16) / 3 = 1/4; std 1/2
    assert grpo([1, 0, 0, 0], VALID4) == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-5)


def test_dr_grpo_only_centres() -> None:
    assert dr_grpo([1, 0, 0, 0], VALID4) == pytest.approx([0.75, -0.25, -0.25, -0.25])


def test_rloo_compares_with_the_others() -> None:
    # rewards 3, 1, 2: others' means 1.5, 2.5, 2
    assert rloo([3, 1, 2], [True] * 3) == pytest.approx([1.5, -1.5, 0.0])


def test_without_flags_everybody_counts() -> None:
    assert rloo([3, 1, 2]).tolist() == rloo([3, 1, 2], [True] * 3).tolist()


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_invalid_members_are_in_no_statistic(name: str) -> None:
    estimate = ESTIMATORS[name]
    with_invalid = estimate([1, float("nan"), 0, 0, 7], [True, False, True, True, False])
    without = estimate([1, 0, 0], [True] * 3)
    assert with_invalid[[0, 2, 3]].tolist() == without.tolist()
    assert with_invalid[[1, 4]].tolist() == [0, 0]


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
@pytest.mark.parametrize(
    ("rewards", "valid"),
    [
        ([1, 1, 1], [True] * 3),
        ([0.1, 0.1, 0.1], [True] * 3),  # their mean is not exactly 0.1 in binary
        ([1, 0], [True, False]),
        ([1, 0], [False, False]),
        ([], []),
    ],
)
def test_no_comparison_gives_exactly_zero(name: str, rewards: list[float], valid: list[bool]) -> None:
    assert ESTIMATORS[name](rewards, valid).tolist() == [0.0] * len(rewards)


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_a_valid_reward_that_is_no_number_is_an_error(name: str) -> None:
    with pytest.raises(ValueError, match="not finite"):
        ESTIMATORS[name]([1, float("inf")], [True, True])


@given(st.lists(st.tuples(st.floats(-100, 100), st.booleans()), max_size=16))
@settings(deadline=None, max_examples=50)
def test_advantages_sum_to_zero_over_valid_members(members: list[tuple[float, bool]]) -> None:
    rewards, valid = [r for r, _ in members], [v for _, v in members]
    for estimate in ESTIMATORS.values():
        out = estimate(rewards, valid)
        assert out.shape == (len(members),)
        assert np.isfinite(out).all()
        assert abs(out.sum()) < 1e-6 * (1 + np.abs(out).sum())
        assert (out[~np.array(valid, dtype=bool)] == 0).all()


def algorithm(
    advantage: str = "grpo", over: str = "trajectories", penalty: float = 0.0, *, before: bool = False
) -> Algorithm:
    return Algorithm(
        advantage=advantage,  # type: ignore[arg-type]
        stats_over=over,  # type: ignore[arg-type]
        invalid_action_penalty=penalty,
        penalty_before_stats=before,
    )


def check(members: list[Member], options: Algorithm, *expected: list[float], abs: float = 1e-9) -> None:
    got = turn_advantages(members, options)
    assert [a.dtype for a in got] == [np.float64] * len(members)
    assert len(got) == len(expected)
    for advantages, wanted in zip(got, expected, strict=True):
        assert advantages == pytest.approx(wanted, abs=abs)


# One short success and one failure of three turns.
SHORT_AND_LONG = [member(1.0, turns=1), member(0.0, turns=3)]


def test_over_trajectories_every_turn_carries_its_trajectorys_advantage() -> None:
    # 1 and 0 standardise to +-1/sqrt(2); centred they are +-1/2; against the other +-1.
    check(SHORT_AND_LONG, algorithm("grpo"), [0.70711], [-0.70711] * 3, abs=1e-5)
    check(SHORT_AND_LONG, algorithm("dr_grpo"), [0.5], [-0.5] * 3)
    check(SHORT_AND_LONG, algorithm("rloo"), [1.0], [-1.0] * 3)


def test_over_steps_the_long_failure_weighs_three_times() -> None:
    # Rows 1, 0, 0, 0: mean 1/4, std 1/2. The others' means: 0 for the success, 1/3 for each row of the failure.
    check(SHORT_AND_LONG, algorithm("grpo", "steps"), [1.5], [-0.5] * 3, abs=1e-5)
    check(SHORT_AND_LONG, algorithm("dr_grpo", "steps"), [0.75], [-0.25] * 3)
    check(SHORT_AND_LONG, algorithm("rloo", "steps"), [1.0], [-1 / 3] * 3)


def test_a_member_without_turns_counts_over_trajectories_and_has_no_row_over_steps() -> None:
    members = [member(1.0, turns=0), member(0.0, turns=2), member(0.5, turns=1)]
    # Mean of 1, 0, 0.5 is 0.5; of the rows 0, 0, 0.5 it is 1/6.
    check(members, algorithm("dr_grpo"), [], [-0.5, -0.5], [0.0])
    check(members, algorithm("dr_grpo", "steps"), [], [-1 / 6, -1 / 6], [1 / 3])


@pytest.mark.parametrize("over", ["trajectories", "steps"])
def test_a_penalty_after_the_statistics_reaches_its_own_turn_only(over: str) -> None:
    members = [member(1.0, turns=2, invalid=[1]), member(0.0, turns=2)]
    # Two turns each, so rows have the mean of trajectories: 1/2.
    check(members, algorithm("dr_grpo", over, 0.1), [0.5, 0.4], [-0.5, -0.5])


def test_a_penalty_after_the_statistics_needs_no_comparison() -> None:
    check([member(0.0, turns=2, invalid=[0])], algorithm(penalty=0.1), [-0.1, 0.0])
    check([member(0.0, turns=1, invalid=[0]), member(0.0)], algorithm(penalty=0.1), [-0.1], [0.0])


def test_a_penalty_before_the_statistics_over_steps() -> None:
    members = [member(1.0, turns=2, invalid=[1]), member(0.0, turns=2)]
    # Rows 1, 0.6, 0, 0: mean 0.4; deviations 0.6, 0.2, -0.4, -0.4; variance (0.36 + 0.04 + 0.32) / 3 = 0.24.
    std = 0.24**0.5
    check(members, algorithm("dr_grpo", "steps", 0.4, before=True), [0.6, 0.2], [-0.4, -0.4])
    check(members, algorithm("grpo", "steps", 0.4, before=True), [0.6 / std, 0.2 / std], [-0.4 / std] * 2, abs=1e-5)
    # Sum 1.6: the others' means are 0.6/3, 1/3, 1.6/3, 1.6/3.
    check(members, algorithm("rloo", "steps", 0.4, before=True), [0.8, 0.6 - 1 / 3], [-1.6 / 3] * 2)


def test_a_penalty_before_the_statistics_over_trajectories_is_a_step_reward() -> None:
    members = [member(1.0, turns=3, invalid=[0, 2]), member(0.0, turns=1)]
    # 1 - 2 * 0.25 = 0.5 against 0, on every turn.
    check(members, algorithm("dr_grpo", "trajectories", 0.25, before=True), [0.25] * 3, [-0.25])
    check(members, algorithm("rloo", "trajectories", 0.25, before=True), [0.5] * 3, [-0.5])
    check(members, algorithm("grpo", "trajectories", 0.25, before=True), [0.70711] * 3, [-0.70711], abs=1e-5)


def test_penalties_that_even_rewards_out_leave_no_spread() -> None:
    members = [member(0.2, turns=3, invalid=[0, 2]), member(0.0, turns=1)]
    for name in ESTIMATORS:
        check(members, algorithm(name, penalty=0.1, before=True), [0.0] * 3, [0.0], abs=0)


@pytest.mark.parametrize("where", [(0, 1, 2), (0, 4, 8), (6, 7, 8)])
def test_as_many_invalid_turns_cost_as_much_wherever_they_stand(where: tuple[int, ...]) -> None:
    members = [member(0.0, turns=9, invalid=where), member(0.0, turns=3, invalid=[0, 1, 2])]
    check(members, algorithm(penalty=0.1, before=True), [0.0] * 9, [0.0] * 3, abs=0)


@pytest.mark.parametrize(("num_invalid", "num_rows"), [(1, 4), (2, 8), (6, 8), (1, 10)])
@pytest.mark.parametrize("penalty", [0.1, 1.0])
def test_an_all_fail_group_with_a_share_of_invalid_rows(num_invalid: int, num_rows: int, penalty: float) -> None:
    # N rows, a share f of them at -p, the rest at 0. Mean -f p; population variance p^2 f (1 - f), unbiased
    # N / (N - 1) times that. An invalid row: -p (1 - f) / std = -sqrt((1 - f) / f * (N - 1) / N), whatever p is.
    # 1 of 4: -sqrt(3 * 3/4) = -1.5, as -1, 0, 0, 0 must give.
    f = num_invalid / num_rows
    invalid_row = -(((1 - f) / f * (num_rows - 1) / num_rows) ** 0.5)
    taken_row = (f / (1 - f) * (num_rows - 1) / num_rows) ** 0.5
    half = num_rows // 2
    members = [
        member(0.0, turns=half, invalid=range(min(num_invalid, half))),
        member(0.0, turns=num_rows - half, invalid=range(max(0, num_invalid - half))),
    ]
    for m, advantages in zip(
        members, turn_advantages(members, algorithm("grpo", "steps", penalty, before=True)), strict=True
    ):
        wanted = np.where(m.step_valid, taken_row, invalid_row)
        assert advantages == pytest.approx(wanted, rel=1e-4)  # 1e-6 beside a std of 0.03 or more


@pytest.mark.parametrize("over", ["trajectories", "steps"])
def test_one_member_is_not_compared_with_itself(over: str) -> None:
    lone = [member(1.0, turns=2, invalid=[0]), member(0.0, turns=3, valid=False)]
    for name in (*ESTIMATORS, "gigpo"):
        check(lone, algorithm(name, over, 0.5, before=True), [0.0, 0.0], [0.0] * 3, abs=0)


@pytest.mark.parametrize("name", [*sorted(ESTIMATORS), "gigpo"])
def test_no_members_and_no_valid_ones(name: str) -> None:
    assert turn_advantages([], algorithm(name)) == []
    check([member(1.0, turns=2, invalid=[0], valid=False)], algorithm(name, penalty=0.1), [0.0, 0.0], abs=0)
    check([member(1.0, turns=0), member(0.0, turns=0)], algorithm(name, "steps"), [], [], abs=0)


@pytest.mark.parametrize("name", [*sorted(ESTIMATORS), "gigpo"])
def test_a_valid_member_without_a_finite_reward_is_named(name: str) -> None:
    members = [member(1.0), member(float("nan"), name="g7/1")]
    with pytest.raises(ValueError, match=r"member 1 \(g7/1\) is valid, but its reward is not finite: nan"):
        turn_advantages(members, algorithm(name))


QUARTERS = st.integers(-8, 8).map(lambda n: n / 4)
MEMBERS = st.lists(
    st.builds(
        member,
        QUARTERS,
        turns=st.integers(0, 4),
        invalid=st.sets(st.integers(0, 3)),
        valid=st.booleans(),
    ),
    max_size=6,
)
OPTIONS = st.builds(
    algorithm,
    st.sampled_from([*sorted(ESTIMATORS), "gigpo"]),
    st.sampled_from(["trajectories", "steps"]),
    st.sampled_from([0.0, 0.25]),
    before=st.booleans(),
)


@given(MEMBERS, OPTIONS, st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=50)
def test_the_order_of_members_does_not_matter(members: list[Member], options: Algorithm, rng: object) -> None:
    order = list(range(len(members)))
    rng.shuffle(order)  # type: ignore[attr-defined]
    straight = turn_advantages(members, options)
    for place, advantages in zip(order, turn_advantages([members[i] for i in order], options), strict=True):
        assert advantages == pytest.approx(straight[place], abs=1e-9)


@given(MEMBERS, OPTIONS, st.sampled_from([float("nan"), float("inf"), 1e300, -7.0]))
@settings(deadline=None, max_examples=50)
def test_what_an_invalid_member_earned_does_not_matter(
    members: list[Member], options: Algorithm, reward: float
) -> None:
    changed = [
        m if m.valid else msgspec.structs.replace(m, reward=reward, step_rewards=np.full(m.num_turns, reward))
        for m in members
    ]
    without = iter(turn_advantages([m for m in members if m.valid], options))
    for m, advantages in zip(members, turn_advantages(changed, options), strict=True):
        assert advantages.shape == (m.num_turns,)
        assert advantages.tolist() == (next(without).tolist() if m.valid else [0.0] * m.num_turns)


@given(MEMBERS, OPTIONS, st.integers(-8, 8))
@settings(deadline=None, max_examples=50)
def test_a_constant_added_to_every_reward_does_not_matter(
    members: list[Member], options: Algorithm, constant: int
) -> None:
    shifted = [msgspec.structs.replace(m, reward=m.reward + constant) for m in members]
    for one, other in zip(turn_advantages(members, options), turn_advantages(shifted, options), strict=True):
        assert other == pytest.approx(one, abs=1e-6)


@given(MEMBERS, OPTIONS)
@settings(deadline=None, max_examples=50)
def test_rewards_and_penalty_in_another_currency(members: list[Member], options: Algorithm) -> None:
    dear = [msgspec.structs.replace(m, reward=4 * m.reward, step_rewards=4 * m.step_rewards) for m in members]
    penalty = options.invalid_action_penalty
    standardised = options.advantage == "grpo"
    if standardised and not options.penalty_before_stats:
        scaled = options  # the penalty is in units of the advantage there
    else:
        scaled = msgspec.structs.replace(options, invalid_action_penalty=4 * penalty)
    factor = 1 if standardised else 4
    for one, other in zip(turn_advantages(members, options), turn_advantages(dear, scaled), strict=True):
        assert other == pytest.approx(factor * one, abs=1e-3)


@given(st.lists(st.integers(0, 4), max_size=6), OPTIONS, st.sampled_from([0.0, 0.1, 1.0]))
@settings(deadline=None, max_examples=50)
def test_all_pass_and_all_fail_give_exactly_zero(turns: list[int], options: Algorithm, reward: float) -> None:
    members = [member(reward, turns=n) for n in turns]
    assert all((a == 0).all() for a in turn_advantages(members, options))


@given(MEMBERS, st.sampled_from(sorted(ESTIMATORS)), st.sampled_from([0.0, 0.25]))
@settings(deadline=None, max_examples=50)
def test_over_steps_the_rows_sum_to_zero(members: list[Member], name: str, penalty: float) -> None:
    rows = turn_advantages(members, algorithm(name, "steps", penalty, before=True))
    assert abs(sum(float(a.sum()) for a in rows)) < 1e-6
