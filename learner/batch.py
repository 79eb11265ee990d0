"""Rows become micro-batches: which rows meet in which micro-batch on which rank, and their padded arrays.

Micro-batches hold rows of similar length, right-padded. Every rank has the same number of them by construction, since
a collective inside a pass would otherwise wait for ever; where a rank has nothing to do, it gets an empty one.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from learner.rows import Row

LongArray = npt.NDArray[np.int64]
MICRO_BATCH_COST_TOKENS = 256  # a micro-batch's fixed cost, in tokens of padding it may save


class MiniBatch(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of one optimiser step, as row numbers."""

    ranks: tuple[tuple[tuple[int, ...], ...], ...]  # [ranks][micro-batches] rows of each
    num_loss_tokens: int  # over all ranks
    num_trajectories: int  # over all ranks
    has_teacher: tuple[bool, ...]  # [micro-batches] whether any rank has a teacher sequence there
    has_signal: bool  # whether any row can move a parameter


class TeacherBatch(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The same response tokens after prompts with the hint. A row without a teacher is not in it."""

    token_ids: LongArray  # [rows, width]
    positions: LongArray  # [scored] flat index of the state that predicts each token
    targets: LongArray  # [scored] token ids
    selected: LongArray  # [scored] their places on the selected axis of the micro-batch; empty if nothing is real
    num_tokens: int  # without padding


class MicroBatch(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One forward pass. The selected axis holds the loss tokens, row by row."""

    token_ids: LongArray  # [rows, width]
    positions: LongArray  # [selected] flat index of the state that predicts each loss token
    targets: LongArray  # [selected] token ids
    mask: npt.NDArray[np.bool_]  # [selected] False only in an empty micro-batch, which holds one token of no weight
    behavior_logprobs: npt.NDArray[np.float32]  # [selected]
    advantages: npt.NDArray[np.float32]  # [selected]
    lags: LongArray  # [selected] lag of the token's row
    num_tokens: int  # without padding
    teacher: TeacherBatch | None  # None: no rank runs a teacher pass here


def plan(
    rows: Sequence[Row], *, num_ranks: int, token_budget: int, mini_batches: int, seed: int | Sequence[int]
) -> tuple[MiniBatch, ...]:
    """Split `rows` into at most `mini_batches` optimiser steps, over ranks and into micro-batches.

    Trajectories are shuffled with `seed` and dealt to the mini-batches whole. Within one, rows in order of length go
    to the ranks in turn, so ranks differ by less than one row of tokens, and all ranks are cut at the same places.
    A row longer than `token_budget` is alone in its micro-batch.
    """
    names = sorted({row.trajectory_id for row in rows})
    order = np.random.default_rng(seed).permutation(len(names))
    share = {names[i]: place % mini_batches for place, i in enumerate(order)}
    parts = [[i for i, row in enumerate(rows) if share[row.trajectory_id] == part] for part in range(mini_batches)]
    return tuple(_plan_one(rows, part, num_ranks, token_budget) for part in parts if part)


def cut_points(widths: Sequence[int], token_budget: int) -> list[int]:
    """Where to cut a non-increasing list of widths so that padding and number of micro-batches cost least together.

    Returns the end of each piece. A piece is padded to its first width and holds at most `token_budget` tokens with
    padding, or one row.
    """
    best: list[int] = [0]  # cost of the first n rows
    start_of: list[int] = [0]  # where the last piece of the best division of the first n rows begins
    for end in range(1, len(widths) + 1):
        choices: list[tuple[int, int]] = []
        for start in range(end - 1, -1, -1):
            padded = widths[start] * (end - start)
            if padded > token_budget and end - start > 1:
                break
            choices.append((best[start] + padded + MICRO_BATCH_COST_TOKENS, start))
        cost, start = min(choices)
        best.append(cost)
        start_of.append(start)
    ends: list[int] = []
    end = len(widths)
    while end:
        ends.append(end)
        end = start_of[end]
    return ends[::-1]


def collate(rows: Sequence[Row], numbers: Sequence[int], *, teacher: bool) -> MicroBatch:
    """The arrays of one micro-batch; with no rows, an empty one that runs the same passes at no weight."""
    members = [rows[i] for i in numbers]
    if not members:
        nothing = np.zeros(1, dtype=np.int64)
        return MicroBatch(
            token_ids=np.zeros((1, 2), dtype=np.int64),
            positions=nothing,
            targets=nothing,
            mask=np.zeros(1, dtype=np.bool_),
            behavior_logprobs=np.zeros(1, dtype=np.float32),
            advantages=np.zeros(1, dtype=np.float32),
            lags=nothing,
            num_tokens=0,
            teacher=_collate_teacher([], []) if teacher else None,
        )
    places = [np.flatnonzero(row.loss_mask) for row in members]
    ids = [row.token_ids for row in members]
    width = max(map(len, ids))
    behavior = np.concatenate([row.behavior_logprobs[p] for row, p in zip(members, places, strict=True)])
    return MicroBatch(
        token_ids=_right_padded(ids, width),
        positions=np.concatenate([i * width + p - 1 for i, p in enumerate(places)]),
        targets=np.concatenate([x[p] for x, p in zip(ids, places, strict=True)]).astype(np.int64),
        mask=np.ones(len(behavior), dtype=np.bool_),
        behavior_logprobs=behavior,
        advantages=np.concatenate([row.advantages[p] for row, p in zip(members, places, strict=True)]),
        lags=np.repeat([row.lag for row in members], [len(p) for p in places]),
        num_tokens=sum(map(len, ids)),
        teacher=_collate_teacher(members, places) if teacher else None,
    )


def _plan_one(rows: Sequence[Row], part: Sequence[int], num_ranks: int, token_budget: int) -> MiniBatch:
    ordered = sorted(part, key=lambda i: (-rows[i].padded_to, i))
    lanes = [ordered[rank::num_ranks] for rank in range(num_ranks)]
    ends = cut_points([rows[i].padded_to for i in lanes[0]], token_budget)  # lane 0 holds the longest row of each place
    starts = [0, *ends[:-1]]
    ranks = tuple(tuple(tuple(lane[a:b]) for a, b in zip(starts, ends, strict=True)) for lane in lanes)
    return MiniBatch(
        ranks=ranks,
        num_loss_tokens=sum(rows[i].num_loss_tokens for i in part),
        num_trajectories=len({rows[i].trajectory_id for i in part}),
        has_teacher=tuple(
            any(rows[i].teacher_ids is not None for rank in ranks for i in rank[micro]) for micro in range(len(ends))
        ),
        has_signal=any(rows[i].has_signal for i in part),
    )


def _collate_teacher(members: Sequence[Row], places: Sequence[LongArray]) -> TeacherBatch:
    sequences: list[npt.NDArray[np.int32]] = []
    shifted: list[LongArray] = []
    selected: list[LongArray] = []
    start = 0
    for row, place in zip(members, places, strict=True):
        if row.teacher_ids is not None:
            sequences.append(row.teacher_ids)
            shifted.append(place + row.teacher_shift)
            selected.append(np.arange(start, start + len(place)))
        start += len(place)
    if not sequences:
        nothing = np.zeros(1, dtype=np.int64)
        return TeacherBatch(
            token_ids=np.zeros((1, 2), dtype=np.int64),
            positions=nothing,
            targets=nothing,
            selected=np.zeros(0, dtype=np.int64),
            num_tokens=0,
        )
    width = max(map(len, sequences))
    return TeacherBatch(
        token_ids=_right_padded(sequences, width),
        positions=np.concatenate([i * width + p - 1 for i, p in enumerate(shifted)]),
        targets=np.concatenate([x[p] for x, p in zip(sequences, shifted, strict=True)]).astype(np.int64),
        selected=np.concatenate(selected),
        num_tokens=sum(map(len, sequences)),
    )


def _right_padded(sequences: Sequence[npt.NDArray[np.int32]], width: int) -> LongArray:
    out = np.zeros((len(sequences), width), dtype=np.int64)
    for i, ids in enumerate(sequences):
        out[i, : len(ids)] = ids
    return out
