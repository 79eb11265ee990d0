from __future__ import annotations

import msgspec
import numpy as np
import pytest

from learner.advantages import grpo
from learner.rows import Row, Rows, build_rows, teacher_sequence
from stream_rl.config import Algorithm
from stream_rl.messages import SelectedGroup
from stream_rl.types import Trajectory
from tests.unit.learner.builders import HEAD_IDS, WordRenderer, group, sample, trajectory

H = len(HEAD_IDS)


def rows_of(
    *groups: SelectedGroup,
    penalty: float = 0.0,
    max_model_len: int = 256,
    version: int = 0,
    algorithm: Algorithm | None = None,
) -> Rows:
    return build_rows(
        groups,
        version=version,
        algorithm=algorithm or Algorithm(invalid_action_penalty=penalty),
        renderer=WordRenderer(),
        max_model_len=max_model_len,
    )


def test_every_loss_token_carries_the_advantage_and_no_other() -> None:
    rows = rows_of(group("g", [1, 0])).rows
    for row, advantage in zip(rows, (2**-0.5, -(2**-0.5)), strict=True):
        assert row.num_loss_tokens > 2
        assert row.advantages[row.loss_mask] == pytest.approx(advantage, abs=1e-5)
        assert (row.advantages[~row.loss_mask] == 0).all()


def test_invalid_actions_are_penalised_after_the_statistics() -> None:
    members = (trajectory("g", 0, 1.0, invalid_turns=[1]), trajectory("g", 1, 0.0), trajectory("g", 2, 0.0))
    plain = SelectedGroup(update=0, group_id="g", trajectories=members, hint=None)
    advantage = grpo([1, 0, 0], [True] * 3)[0]
    row = rows_of(plain, penalty=0.1).rows[0]
    turn = row.advantages[H : H + 15].reshape(3, 5)  # 3 turns of 2 sampled and 3 observed tokens
    expected = np.array([[advantage] * 2, [advantage - 0.1] * 2, [advantage] * 2])
    assert turn[:, :2] == pytest.approx(expected, abs=1e-6)
    assert (turn[:, 2:] == 0).all()


def with_observations(made: Trajectory, observations: str) -> Trajectory:
    turns = (msgspec.structs.replace(turn, observation=o) for turn, o in zip(made.turns, observations, strict=True))
    return msgspec.structs.replace(made, turns=tuple(turns), first_prompt="start")


def test_every_turn_carries_its_own_advantage() -> None:
    made = [with_observations(trajectory("g", i, r), o) for i, (r, o) in enumerate([(1.0, "abz"), (0.0, "acz")])]
    won = msgspec.structs.replace(
        made[0], turns=(*made[0].turns[:2], msgspec.structs.replace(made[0].turns[2], reward=1.0))
    )
    plain = SelectedGroup(update=0, group_id="g", trajectories=(won, made[1]), hint=None)
    rows = rows_of(plain, algorithm=Algorithm(advantage="gigpo", gigpo_gamma=0.5)).rows
    # Episode +-1/2. Returns of the winner 1/4, 1/2, 1; both stood at "start" and "a", and parted at "b" and "c".
    for row, sign in zip(rows, (1, -1), strict=True):
        turns = row.advantages[H : H + 15].reshape(3, 5)
        assert turns[:, :2] == pytest.approx(sign * np.array([[0.625] * 2, [0.75] * 2, [0.5] * 2]))
        assert (turns[:, 2:] == 0).all()


def test_turns_of_a_forked_history_stand_in_their_own_sample() -> None:
    made = trajectory("g", 0, 1.0, turns=2, invalid_turns=[1])
    first, second = made.turns
    forked = msgspec.structs.replace(
        made,
        samples=(sample([(7, True), (8, True), (9, False)]), sample([(7, False), (5, True), (6, True)])),
        turns=(
            msgspec.structs.replace(first, start=H, stop=H + 2),
            msgspec.structs.replace(second, sample=1, start=H + 1, stop=H + 3),
        ),
    )
    plain = SelectedGroup(update=0, group_id="g", trajectories=(forked, trajectory("g", 1, 0.0)), hint=None)
    rows = rows_of(plain, algorithm=Algorithm(advantage="dr_grpo", invalid_action_penalty=0.1)).rows
    assert rows[0].advantages[H:] == pytest.approx([0.5, 0.5, 0.0])
    assert rows[1].advantages[H:] == pytest.approx([0.0, 0.4, 0.4])


def test_a_loss_token_of_no_turn_is_an_error() -> None:
    made = trajectory("g", 0, 1.0)
    short = msgspec.structs.replace(made, turns=made.turns[:2])
    with pytest.raises(ValueError, match="g/0: 2 loss tokens of sample 0 belong to no turn"):
        rows_of(SelectedGroup(update=0, group_id="g", trajectories=(short,), hint=None))
    beyond = msgspec.structs.replace(made.turns[2], stop=H + 99)
    long = msgspec.structs.replace(made, turns=(*made.turns[:2], beyond))
    with pytest.raises(ValueError, match=rf"a turn samples tokens \[{H + 10}, {H + 99}\) of sample 0, which has"):
        rows_of(SelectedGroup(update=0, group_id="g", trajectories=(long,), hint=None))


def test_penalty_alone_is_a_signal() -> None:
    members = (trajectory("g", 0, 0.0, invalid_turns=[0]), trajectory("g", 1, 0.0))
    failed = SelectedGroup(update=0, group_id="g", trajectories=members, hint=None)
    assert [bool(row.advantages.any()) for row in rows_of(failed, penalty=0.1).rows] == [True, False]


def test_invalid_trajectories_give_no_rows() -> None:
    members = (trajectory("g", 0, 1.0), trajectory("g", 1, 0.0, error="the world crashed"), trajectory("g", 2, 0.0))
    rows = rows_of(SelectedGroup(update=0, group_id="g", trajectories=members, hint=None)).rows
    assert [row.trajectory_id for row in rows] == ["g/0", "g/2"]
    assert rows[0].advantages[rows[0].loss_mask] == pytest.approx(2**-0.5, abs=1e-5)  # over the two valid ones


def test_the_teacher_keeps_the_response_ids() -> None:
    for row in rows_of(group("g", [1, 0], hint="search")).rows:
        assert row.teacher_ids is not None
        assert row.teacher_shift > 0
        assert row.teacher_ids[H + row.teacher_shift :].tolist() == row.token_ids[H:].tolist()
        where = np.flatnonzero(row.loss_mask)
        assert row.teacher_ids[where + row.teacher_shift].tolist() == row.token_ids[where].tolist()


def test_an_empty_hint_is_the_student() -> None:
    for row in rows_of(group("g", [1, 0], hint="")).rows:
        assert row.teacher_ids is not None
        assert row.teacher_ids.tolist() == row.token_ids.tolist()


def test_no_hint_no_teacher() -> None:
    assert all(row.teacher_ids is None for row in rows_of(group("g", [1, 0])).rows)


def test_a_renderer_that_disagrees_with_the_producer_is_an_error() -> None:
    made = msgspec.structs.replace(sample([(7, True)]), head_tokens=H - 1)
    with pytest.raises(ValueError, match="different tokenizers"):
        teacher_sequence(made, "", WordRenderer())


def test_a_teacher_beyond_the_context_is_dropped_and_counted() -> None:
    plain = rows_of(group("g", [1, 0, 1]))
    lengths = sorted(len(row.token_ids) for row in plain.rows)
    shift = next(row.teacher_shift for row in rows_of(group("g", [1, 0, 1], hint="search")).rows)
    limited = rows_of(group("g", [1, 0, 1], hint="search"), max_model_len=lengths[1] + shift)
    assert limited.dropped_teachers == 1
    assert len(limited.rows) == 3
    assert sorted(len(r.token_ids) for r in limited.rows if r.teacher_ids is None) == [lengths[2]]


def test_lag_is_counted_from_the_oldest_token() -> None:
    assert {row.lag for row in rows_of(group("g", [1, 0], version=3), version=5).rows} == {2}


def test_samples_that_do_not_fit_are_errors() -> None:
    whole = trajectory("g", 0, 1.0)

    def broken(**changes: object) -> SelectedGroup:
        bad = msgspec.structs.replace(whole, samples=(msgspec.structs.replace(whole.samples[0], **changes),))
        return SelectedGroup(update=0, group_id="g", trajectories=(bad, trajectory("g", 1, 0.0)), hint=None)

    with pytest.raises(ValueError, match="mask entries"):
        rows_of(broken(loss_mask=whole.samples[0].loss_mask[1:]))
    with pytest.raises(ValueError, match="head of 0"):
        rows_of(broken(head_tokens=0))
    with pytest.raises(ValueError, match="holds loss tokens"):
        rows_of(broken(head_tokens=H + 1))


def test_rows_without_a_teacher_pad_to_their_own_length() -> None:
    row: Row = rows_of(group("g", [1, 0])).rows[0]
    assert row.padded_to == len(row.token_ids)
