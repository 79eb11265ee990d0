"""The passes of one update: prox, teacher, then one optimiser step for each mini-batch.

Consumes: training rows. Waits for: nothing but the other ranks. Produces: changed parameters and sums for the metrics.
Unblocked by: its own end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from learner.batch import ForwardPass, MicroBatch, MiniBatch, collate, plan
from learner.correction import decoupled_weights, mismatch
from learner.distill import gap, rised_loss
from learner.logprobs import EntropyMode, TokenScores
from learner.losses import clipped_policy_loss, entropy_bonus, k3, keep
from learner.metrics import Sums
from learner.rows import Row
from stream_rl.config import Algorithm
from stream_rl.errors import StreamRLError


class TrainingDiverged(StreamRLError):
    """Loss or gradient is no longer a number. Nothing was published; resume from the last checkpoint."""


class Engine(Protocol):
    """What an update needs of the thing that holds parameters and optimiser. Every call is made by all ranks."""

    @property
    def rank(self) -> int:
        """This process, 0 .. num_ranks - 1."""
        ...

    @property
    def num_ranks(self) -> int:
        """Processes that train together."""
        ...

    @property
    def device(self) -> torch.device:
        """Where tensors must be."""
        ...

    def score(self, forward: ForwardPass, *, entropy: EntropyMode) -> TokenScores:
        """Run one forward pass, [targets]; with a graph if gradients are on."""
        ...

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of this rank's share of the loss; the shares of all ranks are summed, not averaged."""
        ...

    def step(self) -> float:
        """Clip, step, clear; returns the gradient norm before clipping."""
        ...


class Objective(msgspec.Struct, frozen=True, kw_only=True):
    """What is minimised."""

    algorithm: Algorithm  # coefficients and bounds
    episode_tokens: int  # most tokens one trajectory can sample: the constant divisor of `dr_grpo`
    token_budget: int  # padded tokens of one micro-batch
    mini_batches: int  # optimiser steps

    def divisor(self, mini: MiniBatch) -> int:
        """What the summed token losses of a mini-batch, over all ranks, are divided by."""
        if self.algorithm.advantage == "dr_grpo":
            return mini.num_trajectories * self.episode_tokens
        return mini.num_loss_tokens


class _Work(msgspec.Struct, kw_only=True, eq=False):
    """A micro-batch and what earlier passes found about its selected tokens."""

    batch: MicroBatch
    prox: Tensor | None = None  # [selected]; None: the train pass itself runs at the start parameters, or nobody asks
    teacher: Tensor | None = None  # [selected], 0 where there is no teacher
    has_teacher: Tensor | None = None  # [selected]


def run_update(
    engine: Engine, rows: Sequence[Row], objective: Objective, *, seed: tuple[int, ...], enter: Callable[[str], None]
) -> tuple[Sums, list[float | None]]:
    """Train on `rows`. Returns this rank's sums and one gradient norm a mini-batch, None where no step was taken.

    A mini-batch without any gradient (no advantage, no teacher, no entropy bonus) takes no step: momentum and weight
    decay alone would move the parameters. `enter` is told the state the time belongs to.
    Raises `TrainingDiverged` when loss or gradient is not finite.
    """
    enter("unpack")
    sums = Sums(sorted({row.lag for row in rows}))
    minis = plan(
        rows,
        num_ranks=engine.num_ranks,
        token_budget=objective.token_budget,
        mini_batches=objective.mini_batches,
        seed=seed,
    )
    work = [_collate(rows, mini, engine.rank) for mini in minis]

    enter("prox")
    for number, (mini, items) in enumerate(zip(minis, work, strict=True)):
        # The first mini-batch is trained at the very parameters prox means, in the same micro-batches: its own
        # forward pass is the prox pass. Only later ones need their values saved before the first step.
        if number and (objective.algorithm.correction != "none" or any(mini.peak_teacher_targets)):
            for item in items:
                item.prox = _constant_scores(engine, item.batch)

    enter("teacher")
    for items in work:
        for item in items:
            _run_teacher(engine, item, sums)

    enter("train")
    norms = [
        _train(engine, mini, items, objective, sums, at_start=number == 0)
        for number, (mini, items) in enumerate(zip(minis, work, strict=True))
    ]
    enter("other")
    return sums, norms


def _collate(rows: Sequence[Row], mini: MiniBatch, rank: int) -> list[_Work]:
    return [
        _Work(batch=collate(rows, numbers, peak_targets=peak, peak_teacher_targets=peak_teacher))
        for numbers, peak, peak_teacher in zip(
            mini.ranks[rank], mini.peak_targets, mini.peak_teacher_targets, strict=True
        )
    ]


@torch.no_grad()
def _constant_scores(engine: Engine, batch: MicroBatch) -> Tensor:
    return engine.score(batch.student, entropy="none").logprobs


@torch.no_grad()
def _run_teacher(engine: Engine, item: _Work, sums: Sums) -> None:
    teacher = item.batch.teacher
    if teacher is None:
        return
    logprobs = engine.score(teacher, entropy="none").logprobs
    size = len(item.batch.mask)
    selected = torch.from_numpy(item.batch.teacher_selected).to(engine.device)
    item.teacher = torch.zeros(size, device=engine.device)
    item.has_teacher = torch.zeros(size, dtype=torch.bool, device=engine.device)
    item.teacher[selected] = logprobs[: len(selected)]  # an empty batch has one score and selects none
    item.has_teacher[selected] = True
    sums.add("teacher_tokens", teacher.num_tokens)


def _train(
    engine: Engine, mini: MiniBatch, items: Sequence[_Work], objective: Objective, sums: Sums, *, at_start: bool
) -> float | None:
    entropy_coef = objective.algorithm.entropy_coef
    learns = mini.has_signal or entropy_coef > 0
    divisor = objective.divisor(mini)
    for item in items:
        with torch.set_grad_enabled(learns):
            batch = item.batch
            scores = engine.score(batch.student, entropy="gradient" if entropy_coef else "value")
            if at_start:
                item.prox = scores.logprobs.detach()
            loss = _loss(engine.device, item, scores, objective.algorithm, sums) / divisor
        value = float(loss.detach())
        if not math.isfinite(value):
            raise TrainingDiverged(f"rank {engine.rank}: the loss of a micro-batch is {value}")
        sums.add("loss", value)
        sums.add("real_tokens", batch.student.num_tokens)
        sums.add("padded_tokens", batch.student.token_ids.size if batch.student.num_tokens else 0)
        if learns:
            engine.backward(loss)
    if not learns:
        return None
    norm = engine.step()
    if not math.isfinite(norm):
        raise TrainingDiverged(f"the gradient norm is {norm}")
    return norm


def _loss(device: torch.device, item: _Work, scores: TokenScores, algorithm: Algorithm, sums: Sums) -> Tensor:
    """Summed token loss of one micro-batch, and its part of the sums."""

    def on_device(array: npt.NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(array).to(device)

    policy, prox = scores.logprobs, item.prox
    mask = on_device(item.batch.mask)
    behavior = on_device(item.batch.behavior_logprobs)
    if algorithm.correction == "decoupled":
        assert prox is not None, "the decoupled correction always has prox values"
        anchor, weights = prox, decoupled_weights(prox, behavior, cap=algorithm.behavior_cap)
    else:
        anchor, weights = behavior, torch.ones_like(behavior)
    clipped = clipped_policy_loss(
        policy,
        anchor,
        on_device(item.batch.advantages),
        weights,
        mask,
        clip_low=algorithm.clip_low,
        clip_high=algorithm.clip_high,
        dual_clip=algorithm.dual_clip,
    )
    loss = clipped.loss
    if algorithm.entropy_coef:
        loss = loss - algorithm.entropy_coef * entropy_bonus(scores.entropy, mask)
    if item.teacher is not None and item.has_teacher is not None:
        assert prox is not None, "a mini-batch with a teacher always has prox values"
        scored = mask & item.has_teacher
        loss = loss + algorithm.distill_coef * rised_loss(
            policy, prox, item.teacher, scored, clip=algorithm.distill_clip
        )
        sums.add_gap(gap(prox, item.teacher, scored))
    sums.add("tokens", float(mask.sum()))
    sums.add("entropy", float(keep(scores.entropy.detach().double(), mask).sum()))
    sums.add("clipped", float(clipped.num_clipped))
    if prox is not None:
        sums.add_mismatch(mismatch(prox, behavior, mask, cap=algorithm.behavior_cap))
        lags = on_device(item.batch.lags)
        token_kl = keep(k3(behavior.double(), prox.double()), mask)
        for lag in sums.lags:
            here = mask & (lags == lag)
            sums.add(f"lag.{lag}.tokens", float(here.sum()))
            sums.add(f"lag.{lag}.kl", float(token_kl[here].sum()))
    return loss
