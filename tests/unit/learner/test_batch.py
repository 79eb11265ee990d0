from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learner import batch as batching
from learner.batch import MICRO_BATCH_COST_TOKENS, MiniBatch, cut_points, needs_teacher_pass, trajectory_numbers
from learner.rows import Row


def row(number: int, tokens: int, loss_tokens: int = 2, teacher_extra: int | None = None, signal: float = 1.0) -> Row:
    ids = np.arange(number * 1000, number * 1000 + tokens, dtype=np.int32)
    mask = np.zeros(tokens, dtype=np.bool_)
    mask[tokens - loss_tokens :] = True
    teacher = None
    if teacher_extra is not None:
        teacher = np.concatenate([np.full(teacher_extra, 7, dtype=np.int32), ids])
    return Row(
        group_id="g",
        trajectory_id=f"g/{number}",
        lag=number % 2,
        token_ids=ids,
        loss_mask=mask,
        behavior_logprobs=np.where(mask, np.float32(-1 - number), np.float32(0)).astype(np.float32),
        advantages=np.where(mask, np.float32(signal), np.float32(0)).astype(np.float32),
        teacher_ids=teacher,
    )


plan = partial(batching.plan, has_signal=lambda row: bool(row.advantages.any()), teacher_is_student=False)
collate = partial(batching.collate, trajectories=[0, 1], teacher_is_student=False)


def numbers(mini: MiniBatch) -> list[int]:
    return [i for rank in mini.ranks for micro in rank for i in micro]


shapes = st.lists(st.tuples(st.integers(3, 60), st.sampled_from([None, 0, 9])), max_size=25)


@given(shapes, st.integers(1, 4), st.integers(20, 200), st.integers(1, 3), st.integers(0, 5))
@settings(deadline=None, max_examples=120)
def test_plan_invariants(
    made: list[tuple[int, int | None]], num_ranks: int, budget: int, mini_batches: int, seed: int
) -> None:
    rows = [row(i, tokens, teacher_extra=extra) for i, (tokens, extra) in enumerate(made)]
    minis = plan(rows, num_ranks=num_ranks, token_budget=budget, mini_batches=mini_batches, seed=seed)
    again = plan(rows, num_ranks=num_ranks, token_budget=budget, mini_batches=mini_batches, seed=seed)
    assert minis == again
    # every row exactly once, in nearly equal mini-batches
    assert sorted(i for mini in minis for i in numbers(mini)) == list(range(len(rows)))
    sizes = [len(numbers(mini)) for mini in minis]
    assert len(sizes) == min(mini_batches, len(rows))
    assert max(sizes, default=0) - min(sizes, default=0) <= 1
    for mini in minis:
        # the same number of micro-batches on all ranks
        assert len({len(rank) for rank in mini.ranks}) == 1
        assert mini.num_loss_tokens == 2 * len(numbers(mini))
        tokens = [sum(rows[i].padded_to for micro in rank for i in micro) for rank in mini.ranks]
        longest = max(rows[i].padded_to for i in numbers(mini))
        assert max(tokens) - min(tokens) <= longest
        for micro, (peak, teacher_peak) in enumerate(zip(mini.peak_targets, mini.peak_teacher_targets, strict=True)):
            for rank in mini.ranks:
                widths = [rows[i].padded_to for i in rank[micro]]
                assert len(widths) <= 1 or max(widths) * len(widths) <= budget
                assert 2 * len(widths) <= peak
                taught = [i for i in rank[micro] if rows[i].teacher_ids is not None]
                assert 2 * len(taught) <= teacher_peak


@given(st.lists(st.integers(1, 50), min_size=1, max_size=9), st.integers(10, 120))
@settings(deadline=None, max_examples=60)
def test_cut_points_cost_least(widths: list[int], budget: int) -> None:
    widths = sorted(widths, reverse=True)

    def cost(ends: list[int]) -> float:
        total = 0
        for start, end in zip([0, *ends[:-1]], ends, strict=True):
            padded = widths[start] * (end - start)
            if padded > budget and end - start > 1:
                return float("inf")
            total += padded + MICRO_BATCH_COST_TOKENS
        return total

    inner = len(widths) - 1
    every = [[i + 1 for i in range(inner) if bits >> i & 1] + [len(widths)] for bits in range(2**inner)]
    assert cost(cut_points(widths, budget)) == min(map(cost, every))


def test_nothing_to_plan() -> None:
    assert plan([], num_ranks=2, token_budget=100, mini_batches=2, seed=0) == ()
    assert cut_points([], 10) == []


def test_a_row_longer_than_the_budget_is_alone() -> None:
    assert cut_points([90, 10, 10], 50) == [1, 3]


def test_rows_of_one_trajectory_stay_in_one_mini_batch() -> None:
    rows = [row(i // 2, 10 + i) for i in range(8)]
    minis = plan(rows, num_ranks=1, token_budget=10**4, mini_batches=2, seed=3)
    owners = [{rows[i].trajectory_id for i in numbers(mini)} for mini in minis]
    assert [mini.num_trajectories for mini in minis] == [2, 2]
    assert not owners[0] & owners[1]


def test_signal_is_seen_per_mini_batch() -> None:
    rows = [row(i, 10, signal=float(i == 2), teacher_extra=0 if i == 3 else None) for i in range(4)]
    minis = plan(rows, num_ranks=1, token_budget=99, mini_batches=4, seed=0)
    assert sorted((numbers(m), m.has_signal, m.has_teacher) for m in minis) == [
        ([], False, False),  # 0, 1 and 3: nothing to train, so nothing is read
        ([], False, False),
        ([], False, False),
        ([2], True, False),
    ]
    assert [m.num_loss_tokens for m in minis] == [2, 2, 2, 2]  # the divisor counts what is not read


def test_where_nothing_has_a_signal_everything_is_measured() -> None:
    rows = [row(i, 10, signal=0.0, teacher_extra=0 if i == 3 else None) for i in range(4)]
    minis = plan(rows, num_ranks=1, token_budget=99, mini_batches=4, seed=0)
    assert sorted((numbers(m)[0], m.has_signal, m.has_teacher) for m in minis) == [
        (0, False, False),
        (1, False, False),
        (2, False, False),
        (3, False, True),
    ]


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_rows_without_a_signal_are_left_out_and_every_rank_has_as_many_micro_batches(num_ranks: int) -> None:
    rows = [row(i, 10 + i, signal=float(i % 3 == 0)) for i in range(9)]
    (mini,) = plan(rows, num_ranks=num_ranks, token_budget=24, mini_batches=1, seed=0)
    assert sorted(numbers(mini)) == [0, 3, 6]
    assert len({len(micros) for micros in mini.ranks}) == 1
    assert mini.has_signal
    assert mini.num_loss_tokens == sum(r.num_loss_tokens for r in rows)  # of all: the divisor stays the same
    assert mini.num_trajectories == 9


def test_a_teacher_that_is_the_student_reads_nothing_twice() -> None:
    same, hinted, alone = row(0, 8, teacher_extra=0), row(1, 8, teacher_extra=2), row(2, 8)
    assert [needs_teacher_pass(r, teacher_is_student=True) for r in (same, hinted, alone)] == [False, True, False]
    assert [needs_teacher_pass(r, teacher_is_student=False) for r in (same, hinted, alone)] == [True, True, False]
    rows = [same, hinted, alone]
    (mini,) = plan(rows, num_ranks=1, token_budget=99, mini_batches=1, seed=0, teacher_is_student=True)
    assert mini.has_teacher
    assert mini.peak_teacher_targets == (2,)
    batch = collate(
        rows, (0, 1, 2), trajectories=[0, 1, 2], peak_targets=6, peak_teacher_targets=2, teacher_is_student=True
    )
    assert batch.taught.tolist() == [True, True, True, True, False, False]
    assert batch.teacher_selected.tolist() == [2, 3]
    assert batch.teacher is not None
    assert len(batch.teacher.token_ids) == 1


def test_trajectories_are_numbered_by_their_first_row() -> None:
    assert trajectory_numbers([row(4, 5), row(1, 5), row(4, 6)]) == [0, 1, 0]


def test_collate_by_hand() -> None:
    rows = [row(1, 4), row(2, 6, loss_tokens=3, teacher_extra=2)]
    batch = collate(rows, (0, 1), trajectories=[7, 3], peak_targets=5, peak_teacher_targets=3)
    assert batch.student.token_ids.tolist() == [
        [1000, 1001, 1002, 1003, 0, 0],
        [2000, 2001, 2002, 2003, 2004, 2005],
    ]
    # row 0 scores places 2 and 3 from states 1 and 2; row 1 places 3, 4, 5 from states 6 + 2, 3, 4
    assert batch.student.positions.tolist() == [1, 2, 8, 9, 10]
    assert batch.student.targets.tolist() == [1002, 1003, 2003, 2004, 2005]
    assert batch.student.num_tokens == 10
    assert batch.mask.all()
    assert batch.behavior_logprobs.tolist() == [-2, -2, -3, -3, -3]
    assert batch.lags.tolist() == [1, 1, 0, 0, 0]
    assert batch.segments.tolist() == [0, 0, 1, 1, 1]
    assert batch.trajectories.tolist() == [7, 7, 3, 3, 3]
    assert batch.taught.tolist() == [False, False, True, True, True]
    teacher = batch.teacher
    assert teacher is not None
    assert teacher.token_ids.tolist() == [[7, 7, 2000, 2001, 2002, 2003, 2004, 2005]]
    assert teacher.positions.tolist() == [4, 5, 6]  # two later than in the student
    assert teacher.targets.tolist() == [2003, 2004, 2005]
    assert batch.teacher_selected.tolist() == [2, 3, 4]


@pytest.mark.parametrize("peak_teacher", [0, 4])
def test_an_empty_micro_batch_runs_the_same_passes_at_no_weight(peak_teacher: int) -> None:
    batch = collate([], (), peak_targets=9, peak_teacher_targets=peak_teacher)
    assert batch.mask.tolist() == [False]
    assert batch.student.num_tokens == 0
    assert batch.student.peak_targets == 9
    assert len(batch.student.targets) == len(batch.behavior_logprobs) == len(batch.advantages) == len(batch.lags) == 1
    assert batch.segments.tolist() == batch.trajectories.tolist() == [0]
    assert batch.taught.tolist() == [False]
    assert (batch.teacher is not None) == (peak_teacher > 0)
    assert batch.teacher_selected.tolist() == []
