"""Imitation: a fixed number of steps of weighted next-token training on demonstrations.

Muon on matrices (Jordan et al. 2024, `torch.optim.Muon`), AdamW on embeddings and norms. Everything that matters is
counted in steps and drawn from seeds, nothing from the clock: the same recipe gives the same weights on the same
machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from stream_rl.types import FloatArray, IntArray


class Demonstration(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One played episode as tokens."""

    token_ids: IntArray  # [tokens]
    weights: FloatArray  # [tokens] weight of predicting this token; 0 leaves it out. The first can not be predicted


class ImitationRecipe(msgspec.Struct, frozen=True, kw_only=True):
    """The constants of one imitation."""

    steps: int = 900  # optimiser steps, at least 1
    tokens_per_step: int = 2100  # demonstrations are added to a step until it holds this many tokens
    matrix_lr: float = 0.02  # Muon
    vector_lr: float = 0.01  # AdamW, on the embedding and the norms
    weight_decay: float = 0.01  # of matrices
    grad_clip: float = 1.0  # global norm
    warmup_steps: int = 20  # linear
    decay_frac: float = 0.7  # share of the steps, at the end, over which the rate falls linearly
    final_rate: float = 0.02  # of the peak
    buckets: int = 3  # forward passes of one step, by length, so that little is padding
    threads: int = 2  # CPU threads; part of the recipe because sums of floats depend on it


def imitate(
    model: Any,
    demonstrate: Callable[[float], Demonstration],
    recipe: ImitationRecipe,
    on_step: Callable[[int, int, float], None],
) -> float:
    """Train the Hugging Face causal `model` in place and return the mean loss of the last tenth of the steps.

    demonstrate: gives the next demonstration; told the share of steps that is done, 0 to 1
    on_step: called after every step with (steps done, steps in all, loss in nats per unit of weight)

    Raises `FloatingPointError` when the loss is not a number.
    """
    optimizers = _optimizers(model, recipe)
    peaks = [[group["lr"] for group in optimizer.param_groups] for optimizer in optimizers]
    last: list[float] = []
    model.train()
    with _threads(recipe.threads):
        for step in range(recipe.steps):
            for optimizer, rates in zip(optimizers, peaks, strict=True):
                for group, peak in zip(optimizer.param_groups, rates, strict=True):
                    group["lr"] = peak * learning_rate_factor(step, recipe)
            loss = _accumulate(model, _gather(demonstrate, step / recipe.steps, recipe.tokens_per_step), recipe.buckets)
            if not np.isfinite(loss):
                raise FloatingPointError(f"imitation: loss is {loss} at step {step} of {recipe.steps}")
            torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.grad_clip)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            if step >= recipe.steps - max(1, recipe.steps // 10):
                last.append(loss)
            on_step(step + 1, recipe.steps, loss)
    model.eval()
    return float(np.mean(last))


def learning_rate_factor(step: int, recipe: ImitationRecipe) -> float:
    """Share of the peak rate at `step`: linear warm-up, flat, linear fall to `final_rate`."""
    warmup = (step + 1) / recipe.warmup_steps
    fall = (1 - step / recipe.steps) / recipe.decay_frac
    return min(1.0, warmup, max(recipe.final_rate, fall))


def pad(demonstrations: Sequence[Demonstration]) -> tuple[Tensor, Tensor]:
    """(ids [B, T] int64, weights [B, T] float32), right-padded with zeros."""
    longest = max(len(d.token_ids) for d in demonstrations)
    ids_BT = torch.zeros(len(demonstrations), longest, dtype=torch.long)
    weights_BT = torch.zeros(len(demonstrations), longest)
    for row, demonstration in enumerate(demonstrations):
        count = len(demonstration.token_ids)
        ids_BT[row, :count] = torch.from_numpy(demonstration.token_ids.astype(np.int64))
        weights_BT[row, :count] = torch.from_numpy(demonstration.weights)
    return ids_BT, weights_BT


def weighted_loss(logits_BTV: Tensor, ids_BT: Tensor, weights_BT: Tensor) -> Tensor:
    """Sum over tokens of weight * cross entropy in nats; position t predicts token t + 1."""
    losses = F.cross_entropy(logits_BTV[:, :-1].flatten(0, 1), ids_BT[:, 1:].flatten(), reduction="none")
    return (losses * weights_BT[:, 1:].flatten()).sum()


def _gather(demonstrate: Callable[[float], Demonstration], done_frac: float, num_tokens: int) -> list[Demonstration]:
    batch: list[Demonstration] = []
    count = 0
    while count < num_tokens:
        batch.append(demonstrate(done_frac))
        count += len(batch[-1].token_ids)
    return sorted(batch, key=lambda d: len(d.token_ids))


def _accumulate(model: Any, batch: Sequence[Demonstration], buckets: int) -> float:
    """Gradients of the mean loss per unit of weight, and that loss."""
    total = sum(float(d.weights[1:].sum()) for d in batch)
    size = -(-len(batch) // buckets)
    loss_sum = 0.0
    for start in range(0, len(batch), size):
        ids_BT, weights_BT = pad(batch[start : start + size])
        # Right padding needs no attention mask under causal attention, and without one the fast kernel is used.
        logits_BTV = model(input_ids=ids_BT, use_cache=False).logits
        loss = weighted_loss(logits_BTV, ids_BT, weights_BT) / total
        loss.backward()  # type: ignore[no-untyped-call]
        loss_sum += loss.item()
    return loss_sum


def _optimizers(model: Any, recipe: ImitationRecipe) -> list[torch.optim.Optimizer]:
    embedding = model.get_input_embeddings().weight
    matrices = [p for p in model.parameters() if p.ndim == 2 and p is not embedding]
    others = [p for p in model.parameters() if not (p.ndim == 2 and p is not embedding)]
    return [
        torch.optim.Muon(matrices, lr=recipe.matrix_lr, weight_decay=recipe.weight_decay),
        torch.optim.AdamW(others, lr=recipe.vector_lr, betas=(0.9, 0.98), weight_decay=0.0),
    ]


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
