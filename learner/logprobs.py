"""Log-probabilities of sampled tokens, without ever holding a [tokens, vocabulary] matrix of a large vocabulary.

Axes: N, selected tokens; H, hidden; V, vocabulary; K, kept tokens of a distribution. The convention of the whole
stream: log_softmax(logits / T) in float32, T being the temperature the tokens were sampled at.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

EntropyMode = Literal["none", "value", "gradient"]
CHUNK_ELEMENTS = 1 << 22  # logits alive at once: 16 MB in float32


class TokenScores(NamedTuple):
    """One value, or K of them, for each selected token."""

    logprobs: Tensor  # [N] float32
    entropy: Tensor  # [N] float32, nats; zeros when it was not asked for
    support_ids: Tensor  # [N, K] int64, the kept tokens of each distribution; K is 0 when none were asked for
    support_logprobs: Tensor  # [N, K] float32, of those tokens


def chunks_for(num_tokens: int, vocab_size: int, chunk_elements: int = CHUNK_ELEMENTS) -> int:
    """Chunks that keep the logits of each at `chunk_elements` at most, or at one token's."""
    return max(1, math.ceil(num_tokens / max(1, chunk_elements // vocab_size)))


def token_scores(
    hidden_NH: Tensor,
    targets_N: Tensor,
    head: Callable[[Tensor], Tensor],
    *,
    temperature: float,
    entropy: EntropyMode,
    support: int | Tensor = 0,
    num_chunks: int = 1,
) -> TokenScores:
    """Score `targets` under `head(hidden)`, calling the head once for each of `num_chunks` nearly equal chunks.

    `entropy` is not computed ("none"), a constant ("value") or differentiable ("gradient"). `support` asks for more of
    each distribution than its target: a number keeps that many most probable tokens, at most the vocabulary; ids
    [N, K] choose them. With more than one chunk and gradients on, a chunk's logits are dropped and computed again in
    the backward pass. A chunk may be empty: under ZeRO 3 each call gathers the head's weights, so ranks with fewer
    tokens must call it just as often.
    """
    if hidden_NH.ndim != 2 or targets_N.shape != hidden_NH.shape[:1]:
        raise ValueError(f"expected [N, H] and [N], got {tuple(hidden_NH.shape)} and {tuple(targets_N.shape)}")
    if isinstance(support, Tensor) and (support.ndim != 2 or support.shape[:1] != targets_N.shape):
        raise ValueError(f"expected a support [N, K] for {tuple(targets_N.shape)}, got {tuple(support.shape)}")

    chosen_NK, num_kept = (support, 0) if isinstance(support, Tensor) else (None, support)

    def score(hidden: Tensor, targets: Tensor, chosen: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        log_softmax = torch.log_softmax(head(hidden).float() / temperature, dim=-1)
        logprobs = log_softmax.gather(-1, targets[:, None])[:, 0]
        if chosen is not None:
            kept, ids = log_softmax.gather(-1, chosen), chosen
        elif num_kept:
            kept, ids = log_softmax.topk(min(num_kept, log_softmax.shape[-1]), dim=-1)
        else:  # new tensors: an empty view of `log_softmax` would keep all of it alive
            kept, ids = log_softmax.new_zeros(len(targets), 0), targets.new_zeros(len(targets), 0)
        if entropy == "none":
            return logprobs, torch.zeros_like(logprobs), ids, kept
        if entropy == "value":
            log_softmax = log_softmax.detach()
        return logprobs, -(log_softmax.exp() * log_softmax).sum(-1), ids, kept

    if num_chunks == 1:
        return TokenScores(*score(hidden_NH, targets_N, chosen_NK))
    chosen_chunks = [None] * num_chunks if chosen_NK is None else chosen_NK.tensor_split(num_chunks)
    parts: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
    for chunk in zip(
        hidden_NH.tensor_split(num_chunks), targets_N.tensor_split(num_chunks), chosen_chunks, strict=True
    ):
        if torch.is_grad_enabled():
            parts.append(checkpoint(score, *chunk, use_reentrant=False, preserve_rng_state=False))
        else:
            parts.append(score(*chunk))
    return TokenScores(*(torch.cat(column) for column in zip(*parts, strict=True)))
