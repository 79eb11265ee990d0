"""Rows become micro-batches: which rows meet in which micro-batch on which rank, and their padded arrays.

Micro-batches hold rows of similar length, right-padded. Every rank has the same number of them by construction, since
a collective inside a pass would otherwise wait for ever; where a rank has nothing to do, it gets an empty one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from learner.rows import Row

LongArray = npt.NDArray[np.int64]
MICRO_BATCH_COST_TOKENS = 256  # a micro-batch's fixed cost, in tokens of padding it may save


class MiniBatch(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of one optimiser step, as row numbers."""

    ranks: tuple[tuple[tuple[int, ...], ...], ...]  # [ranks][micro-batches] rows of each; all ranks have as many
    num_loss_tokens: int  # over all ranks
    num_trajectories: int  # over all ranks
    trains: bool  # whether its rows can move a parameter; else they are only measured
    has_teacher: bool  # whether a teacher scores any row
    peak_targets: tuple[int, ...]  # [micro-batches] most loss tokens on any rank
    peak_teacher_targets: tuple[int, ...]  # [micro-batches] most of them in a teacher pass; 0: no rank runs one

    @property
    def has_signal(self) -> bool:
        """Whether any row can move a parameter."""
        return self.trains and bool(self.ranks[0])


class ForwardPass(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Right-padded sequences and the tokens in them to score."""

    token_ids: LongArray  # [rows, width]
    positions: LongArray  # [targets] flat index of the state that predicts each target
    targets: LongArray  # [targets] token ids
    num_tokens: int  # without padding
    peak_targets: int  # most targets on any rank: ranks that gather the output head must do so equally often


class MicroBatch(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What one rank computes between two collectives. The selected axis holds the loss tokens, row by row."""

    student: ForwardPass  # targets are the selected axis
    mask: npt.NDArray[np.bool_]  # [selected] False only in an empty micro-batch, which holds one token of no weight
    behavior_logprobs: npt.NDArray[np.float32]  # [selected]
    advantages: npt.NDArray[np.float32]  # [selected]
    lags: LongArray  # [selected] lag of the token's row
    segments: LongArray  # [selected] number of the token's row in this micro-batch
    trajectories: LongArray  # [selected] number of the token's trajectory in the update
    taught: npt.NDArray[np.bool_]  # [selected] whether a teacher scores the token
    teacher: ForwardPass | None  # taught tokens after prompts with the hint; None: no rank runs a teacher pass here
    teacher_selected: LongArray  # [scored] places of the teacher's targets on the selected axis; empty: none is real


def plan(
    rows: Sequence[Row],
    *,
    num_ranks: int,
    token_budget: int,
    mini_batches: int,
    seed: int | Sequence[int],
    has_signal: Callable[[Row], bool],
    teacher_is_student: bool,
) -> tuple[MiniBatch, ...]:
    """Split `rows` into at most `mini_batches` optimiser steps, over ranks and into micro-batches.

    Trajectories are shuffled with `seed` and dealt to the mini-batches whole. Within one, rows in order of length go
    to the ranks in turn, so ranks differ by less than one row of tokens, and all ranks are cut at the same places.
    A row longer than `token_budget` is alone in its micro-batch. Rows without a signal (under plain GRPO those of
    groups that passed or failed as a whole) count where tokens and trajectories do, and no pass reads them; where no
    row has one, they are all read, since a generator that disagrees may be why.
    `teacher_is_student`: see `needs_teacher_pass`.
    """
    signal = [has_signal(row) for row in rows]
    scored = [needs_teacher_pass(row, teacher_is_student=teacher_is_student) for row in rows]
    names = sorted({row.trajectory_id for row in rows})
    order = np.random.default_rng(seed).permutation(len(names))
    share = {names[i]: place % mini_batches for place, i in enumerate(order)}
    parts = [[i for i, row in enumerate(rows) if share[row.trajectory_id] == part] for part in range(mini_batches)]
    return tuple(_plan_one(rows, part, num_ranks, token_budget, signal, scored) for part in parts if part)


def needs_teacher_pass(row: Row, *, teacher_is_student: bool) -> bool:
    """Whether the teacher's scores of a row can differ from the student's own.

    They cannot where it has the student's parameters (`teacher_is_student`) and reads the same ids: D is exactly 0
    there, whatever kernels two passes would take.
    """
    ids = row.teacher_ids
    return ids is not None and not (teacher_is_student and np.array_equal(ids, row.token_ids))


def trajectory_numbers(rows: Sequence[Row]) -> list[int]:
    """The number of each row's trajectory, from 0 in order of their first rows. The same on every rank."""
    numbers: dict[str, int] = {}
    return [numbers.setdefault(row.trajectory_id, len(numbers)) for row in rows]


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


def collate(
    rows: Sequence[Row],
    numbers: Sequence[int],
    *,
    trajectories: Sequence[int],
    peak_targets: int,
    peak_teacher_targets: int,
    teacher_is_student: bool,
) -> MicroBatch:
    """The arrays of one micro-batch; with no rows, an empty one that runs the same passes at no weight.

    `trajectories` are the `trajectory_numbers` of all `rows`.
    """
    members = [rows[i] for i in numbers]
    places = [np.flatnonzero(row.loss_mask) for row in members]
    counts = [len(place) for place in places]
    starts = np.cumsum([0, *counts[:-1]])
    scored = [i for i, row in enumerate(members) if needs_teacher_pass(row, teacher_is_student=teacher_is_student)]
    teacher = None
    if peak_teacher_targets:
        sequences = [
            (ids, places[i] + members[i].teacher_shift) for i in scored if (ids := members[i].teacher_ids) is not None
        ]
        teacher = _forward_pass(sequences, peak_teacher_targets)
    return MicroBatch(
        student=_forward_pass([(row.token_ids, p) for row, p in zip(members, places, strict=True)], peak_targets),
        mask=np.ones(sum(counts), dtype=np.bool_) if members else np.zeros(1, dtype=np.bool_),
        behavior_logprobs=_joined([row.behavior_logprobs[p] for row, p in zip(members, places, strict=True)]),
        advantages=_joined([row.advantages[p] for row, p in zip(members, places, strict=True)]),
        lags=_spread([row.lag for row in members], counts),
        segments=_spread(range(len(members)), counts),
        trajectories=_spread([trajectories[i] for i in numbers], counts),
        taught=_spread([row.teacher_ids is not None for row in members], counts).astype(np.bool_),
        teacher=teacher,
        teacher_selected=np.concatenate(
            [np.zeros(0, dtype=np.int64), *(np.arange(counts[i]) + starts[i] for i in scored)]
        ),
    )


def _plan_one(
    rows: Sequence[Row],
    part: Sequence[int],
    num_ranks: int,
    token_budget: int,
    signal: Sequence[bool],
    scored: Sequence[bool],
) -> MiniBatch:
    trains = any(signal)
    read = [i for i in part if signal[i] or not trains]
    ranks = _deal(rows, read, num_ranks, token_budget)
    return MiniBatch(
        ranks=ranks,
        num_loss_tokens=sum(rows[i].num_loss_tokens for i in part),
        num_trajectories=len({rows[i].trajectory_id for i in part}),
        trains=trains,
        has_teacher=any(rows[i].teacher_ids is not None for i in read),
        peak_targets=_peaks(ranks, [row.num_loss_tokens for row in rows]),
        peak_teacher_targets=_peaks(ranks, [row.num_loss_tokens * s for row, s in zip(rows, scored, strict=True)]),
    )


def _deal(
    rows: Sequence[Row], part: Sequence[int], num_ranks: int, token_budget: int
) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """[ranks][micro-batches] rows of each; every rank has the same number of micro-batches."""
    ordered = sorted(part, key=lambda i: (-rows[i].padded_to, i))
    lanes = [ordered[rank::num_ranks] for rank in range(num_ranks)]
    ends = cut_points([rows[i].padded_to for i in lanes[0]], token_budget)  # lane 0 holds the longest row of each place
    starts = [0, *ends][: len(ends)]
    return tuple(tuple(tuple(lane[a:b]) for a, b in zip(starts, ends, strict=True)) for lane in lanes)


def _peaks(ranks: Sequence[Sequence[Sequence[int]]], counts: Sequence[int]) -> tuple[int, ...]:
    """For each micro-batch, the largest sum of `counts` that any rank has in it."""
    return tuple(max(sum(counts[i] for i in micro) for micro in column) for column in zip(*ranks, strict=True))


def _forward_pass(sequences: Sequence[tuple[npt.NDArray[np.int32], LongArray]], peak_targets: int) -> ForwardPass:
    """From (ids, places of the tokens to score); without any, one padded row and one target nobody reads."""
    if not sequences:
        nothing = np.zeros(1, dtype=np.int64)
        return ForwardPass(
            token_ids=np.zeros((1, 2), dtype=np.int64),
            positions=nothing,
            targets=nothing,
            num_tokens=0,
            peak_targets=peak_targets,
        )
    width = max(len(ids) for ids, _ in sequences)
    padded = np.zeros((len(sequences), width), dtype=np.int64)
    for i, (ids, _) in enumerate(sequences):
        padded[i, : len(ids)] = ids
    return ForwardPass(
        token_ids=padded,
        positions=np.concatenate([i * width + places - 1 for i, (_, places) in enumerate(sequences)]),
        targets=np.concatenate([ids[places] for ids, places in sequences]).astype(np.int64),
        num_tokens=sum(len(ids) for ids, _ in sequences),
        peak_targets=peak_targets,
    )


def _spread(values: Sequence[int], counts: Sequence[int]) -> LongArray:
    """Each row's value on each of its tokens; one 0 for the one token of an empty micro-batch."""
    return np.repeat(np.asarray(values, dtype=np.int64), counts) if counts else np.zeros(1, dtype=np.int64)


def _joined(parts: Sequence[npt.NDArray[np.float32]]) -> npt.NDArray[np.float32]:
    return np.concatenate(parts) if parts else np.zeros(1, dtype=np.float32)
