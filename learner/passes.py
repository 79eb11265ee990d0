"""The passes over a micro-batch that need no gradient: prox, teacher, reference.

Axes: T, selected tokens of a micro-batch; K, kept tokens of a distribution.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import torch
from torch import Tensor

from learner.batch import ForwardPass, MicroBatch, MiniBatch, collate
from learner.gap_statistics import GapStatistics
from learner.logprobs import TokenScores
from learner.metrics import Sums
from learner.ports import Engine, Scorer
from learner.rows import Row


class Tokens(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The selected axis of a micro-batch, on the device. Every field is [T]."""

    mask: Tensor  # bool, False only in an empty micro-batch
    behavior_logprobs: Tensor  # float32
    advantages: Tensor  # float32
    lags: Tensor  # int64
    segments: Tensor  # int64, the token's row
    trajectories: Tensor  # int64, the token's trajectory
    scored: Tensor  # bool, whether a teacher scores the token


class Work(msgspec.Struct, kw_only=True, eq=False):
    """A micro-batch and what the passes found about its selected tokens."""

    student: ForwardPass  # what is trained
    teacher: ForwardPass | None  # what the teacher reads; None: no rank runs a teacher pass here
    teacher_selected: Tensor  # [scored in that pass] places of its targets on the selected axis
    tokens: Tokens  # the selected axis
    trains: bool  # whether any of it can move a parameter; False: it is scored once, for the metrics
    prox: TokenScores | None = None  # parameters at the start of the update; None: not known yet, or nobody asks
    teacher_scores: TokenScores | None = None  # of the teacher's own pass, spread over T; undefined elsewhere
    reference_logprobs: Tensor | None = None  # [T]; None: no KL to a reference

    @property
    def known_prox(self) -> TokenScores:
        """`prox`, where the objective sees to it that it is there."""
        assert self.prox is not None, "the prox pass of a mini-batch comes before what reads it"
        return self.prox

    @property
    def taught(self) -> TokenScores:
        """The teacher's scores, [T]. Where it runs no pass of its own it is the student: its scores are prox."""
        prox, own = self.known_prox, self.teacher_scores
        if own is None:
            return prox
        passed = torch.zeros_like(self.tokens.mask).index_fill_(0, self.teacher_selected, True)
        return TokenScores(
            logprobs=torch.where(passed, own.logprobs, prox.logprobs),
            entropy=own.entropy,
            support_ids=prox.support_ids,
            support_logprobs=torch.where(passed[:, None], own.support_logprobs, prox.support_logprobs),
        )

    @property
    def gap(self) -> Tensor:
        """D = logT - logS, [T]; meaningful where a teacher scores the token."""
        return self.taught.logprobs - self.known_prox.logprobs


def prepare(
    rows: Sequence[Row],
    mini: MiniBatch,
    *,
    rank: int,
    device: torch.device,
    trajectories: Sequence[int],
    teacher_is_student: bool,
) -> list[Work]:
    """The micro-batches of one rank."""
    return [
        _on_device(
            collate(
                rows,
                numbers,
                trajectories=trajectories,
                peak_targets=peak,
                peak_teacher_targets=peak_teacher,
                teacher_is_student=teacher_is_student,
            ),
            device,
            trains=mini.trains,
        )
        for numbers, peak, peak_teacher in zip(
            mini.ranks[rank], mini.peak_targets, mini.peak_teacher_targets, strict=True
        )
    ]


@torch.no_grad()
def run_prox(engine: Engine, work: Work, *, kept_tokens: int) -> None:
    """Score the student's tokens, and keep the `kept_tokens` most probable ones of each distribution.

    Of what is not trained this is the only pass, so it brings the entropy, too.
    """
    work.prox = engine.score(work.student, entropy="none" if work.trains else "value", support=kept_tokens)


@torch.no_grad()
def run_teacher(teacher: Scorer, work: Work, sums: Sums) -> None:
    """Score the same tokens after prompts with the hint; of their distributions, the tokens the student's pass kept."""
    if work.teacher is None:
        return
    selected = work.teacher_selected
    kept_ids = None if work.prox is None else work.prox.support_ids
    support: int | Tensor = 0
    if kept_ids is not None and kept_ids.shape[-1]:
        # The pass of a rank without teachers has one target that nobody reads.
        support = kept_ids[selected] if len(selected) else torch.zeros_like(kept_ids[:1])
    scores = teacher.score(work.teacher, entropy="none", support=support)
    size = len(work.tokens.mask)

    def spread(found: Tensor) -> Tensor:
        return found.new_zeros(size, *found.shape[1:]).index_copy_(0, selected, found[: len(selected)])

    work.teacher_scores = TokenScores(*(spread(found) for found in scores))
    sums.add("teacher_tokens", work.teacher.num_tokens)


@torch.no_grad()
def run_reference(reference: Scorer, work: Work, sums: Sums) -> None:
    """Score the student's tokens under the reference's parameters."""
    work.reference_logprobs = reference.score(work.student, entropy="none").logprobs
    sums.add("reference_tokens", work.student.num_tokens)


def gap_statistics(engine: Engine, work: Sequence[Work], num_trajectories: int) -> GapStatistics:
    """Statistics of D over whole trajectories. One collective: all ranks call it."""
    statistics = GapStatistics(num_trajectories, engine.device)
    for item in work:
        tokens = item.tokens
        if bool(tokens.scored.any()):
            statistics.add(item.gap, tokens.trajectories, tokens.scored)
    statistics.reduce(engine.sum_over_ranks)
    return statistics


def _on_device(batch: MicroBatch, device: torch.device, *, trains: bool) -> Work:
    mask = torch.from_numpy(batch.mask).to(device)
    return Work(
        student=batch.student,
        teacher=batch.teacher,
        trains=trains,
        teacher_selected=torch.from_numpy(batch.teacher_selected).to(device),
        tokens=Tokens(
            mask=mask,
            behavior_logprobs=torch.from_numpy(batch.behavior_logprobs).to(device),
            advantages=torch.from_numpy(batch.advantages).to(device),
            lags=torch.from_numpy(batch.lags).to(device),
            segments=torch.from_numpy(batch.segments).to(device),
            trajectories=torch.from_numpy(batch.trajectories).to(device),
            scored=mask & torch.from_numpy(batch.taught).to(device),
        ),
    )
