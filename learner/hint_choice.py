"""Chooses the hint of groups that come with several: reads every trajectory with each, before the update begins.

Consumes: selected groups with `alternatives`. Waits for: nothing but the other ranks. Produces: the same groups with
one hint, or none. Unblocked by: its own end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

import msgspec
import numpy as np
import torch

from learner.batch import LongArray, collate, plan, trajectory_numbers
from learner.members import member_of
from learner.objective import Objective
from learner.ports import Engine, Scorer
from learner.rows import HeadRenderer, Row, teacher_sequence
from learner.within import Choice, choose, step_signals
from stream_rl.messages import SelectedGroup
from stream_rl.types import BoolArray, IntArray, Trajectory


class HintsChosen(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the groups of a round."""

    groups: tuple[SelectedGroup, ...]  # all of them, without alternatives
    choices: tuple[Choice, ...]  # of those that had some
    num_tokens: int  # read by this rank for the choice


class _Reading(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One sequence to score, and the cell of the table that each of its loss tokens adds to."""

    row: Row
    cells: LongArray  # [loss tokens]
    by_student: bool  # read without a hint


def choose_hints(
    engine: Engine,
    teacher: Scorer | None,
    groups: Sequence[SelectedGroup],
    objective: Objective,
    *,
    renderer: HeadRenderer,
    max_model_len: int,
) -> HintsChosen:
    """Give each group that has `alternatives` the one whose D best follows its step advantages (`learner.within`).

    The mean D of a turn is the difference of two sums of log-probabilities, so the sums of all readings are added over
    ranks at once: every rank calls this, and every rank chooses the same. A hint that makes a sequence longer than
    `max_model_len` is not read there.
    """
    open_groups = [group for group in groups if group.alternatives]
    if not open_groups:
        return HintsChosen(groups=tuple(groups), choices=(), num_tokens=0)
    trajectories = [t for group in open_groups for t in group.trajectories if t.valid]
    first_turn = dict(zip((t.id for t in trajectories), _offsets([len(t.turns) for t in trajectories]), strict=True))
    num_turns = sum(len(t.turns) for t in trajectories)
    readings = [r for group in open_groups for r in _readings(group, first_turn, num_turns, renderer, max_model_len)]
    num_columns = 1 + max(len(group.alternatives) for group in open_groups)
    sums = torch.zeros(num_columns * num_turns, dtype=torch.float64)
    if teacher is None:
        num_tokens = _read(engine, engine, readings, objective.token_budget, sums)
    else:
        own = [reading for reading in readings if reading.by_student]
        hinted = [reading for reading in readings if not reading.by_student]
        num_tokens = _read(engine, engine, own, objective.token_budget, sums)
        num_tokens += _read(engine, teacher, hinted, objective.token_budget, sums)
    scores = np.asarray(engine.sum_over_ranks(sums.tolist())).reshape(num_columns, num_turns)
    cells = np.concatenate([np.zeros(0, dtype=np.int64), *(reading.cells for reading in readings)])
    counts = np.bincount(cells, minlength=num_columns * num_turns).reshape(num_columns, num_turns)
    # A turn is compared where the hint was read with every token of it.
    complete = (counts == counts[0]) & (counts > 0)
    mean_gaps = np.where(complete, (scores - scores[0]) / np.maximum(counts, 1), np.nan)

    chosen: dict[str, SelectedGroup] = {}
    choices: list[Choice] = []
    for group in open_groups:
        members = [t for t in group.trajectories if t.valid]
        spans = [slice(first_turn[t.id], first_turn[t.id] + len(t.turns)) for t in members]
        choice = choose(
            [[mean_gaps[1 + i, span] for span in spans] for i in range(len(group.alternatives))],
            step_signals([member_of(t) for t in members], gamma=objective.algorithm.gigpo_gamma),
            min_rho=objective.algorithm.min_rho,
        )
        choices.append(choice)
        hint = None if choice.index is None else group.alternatives[choice.index]
        chosen[group.group_id] = msgspec.structs.replace(group, hint=hint, alternatives=())
    return HintsChosen(
        groups=tuple(chosen.get(group.group_id, group) for group in groups),
        choices=tuple(choices),
        num_tokens=num_tokens,
    )


def _readings(
    group: SelectedGroup, first_turn: dict[str, int], num_turns: int, renderer: HeadRenderer, max_model_len: int
) -> Iterator[_Reading]:
    for trajectory in group.trajectories:
        if not trajectory.valid:
            continue
        for number, sample in enumerate(trajectory.samples):
            turns = _turn_of_tokens(trajectory, number) + first_turn[trajectory.id]
            sampled = sample.loss_mask & (turns >= first_turn[trajectory.id])
            if not sampled.any():
                continue
            hinted = [teacher_sequence(sample, hint, renderer) for hint in group.alternatives]
            for column, ids in enumerate((sample.token_ids, *hinted)):
                if column == 0 or len(ids) <= max_model_len:
                    yield _Reading(
                        row=_row(group, trajectory, ids, sampled),
                        cells=turns[sampled] + column * num_turns,
                        by_student=column == 0,
                    )


def _turn_of_tokens(trajectory: Trajectory, number: int) -> LongArray:
    """The turn that sampled each token of a sample, [tokens]; -1 for tokens nobody sampled."""
    turn_of = np.full(len(trajectory.samples[number].token_ids), -1, dtype=np.int64)
    for i, turn in enumerate(trajectory.turns):
        if turn.sample == number:
            turn_of[turn.start : turn.stop] = i
    return turn_of


def _row(group: SelectedGroup, trajectory: Trajectory, ids: IntArray, sampled: BoolArray) -> Row:
    """The ids with the sampled tokens at their end; nothing of it is trained."""
    mask = np.zeros(len(ids), dtype=np.bool_)
    mask[np.flatnonzero(sampled) + len(ids) - len(sampled)] = True
    nothing = np.zeros(len(ids), dtype=np.float32)
    return Row(
        group_id=group.group_id,
        trajectory_id=trajectory.id,
        lag=0,
        token_ids=ids,
        loss_mask=mask,
        behavior_logprobs=nothing,
        advantages=nothing,
    )


@torch.no_grad()
def _read(engine: Engine, scorer: Scorer, readings: Sequence[_Reading], token_budget: int, sums: torch.Tensor) -> int:
    """Add this rank's share of the log-probabilities to `sums`, and return how many tokens it read."""
    rows = [reading.row for reading in readings]
    minis = plan(
        rows,
        num_ranks=engine.num_ranks,
        token_budget=token_budget,
        mini_batches=1,
        seed=0,
        has_signal=lambda _: False,
        teacher_is_student=True,
    )
    numbers = trajectory_numbers(rows)
    num_tokens = 0
    for mini in minis:
        for places, peak in zip(mini.ranks[engine.rank], mini.peak_targets, strict=True):
            batch = collate(
                rows, places, trajectories=numbers, peak_targets=peak, peak_teacher_targets=0, teacher_is_student=True
            )
            logprobs = scorer.score(batch.student, entropy="none").logprobs
            if places:
                cells = torch.from_numpy(np.concatenate([readings[i].cells for i in places]))
                sums.index_add_(0, cells, logprobs.double().cpu())
            num_tokens += batch.student.num_tokens
    return num_tokens


def _offsets(counts: Sequence[int]) -> list[int]:
    return list(accumulate(counts, initial=0))[:-1]
