"""Log-probabilities of sampled tokens, without ever holding a [tokens, vocabulary] matrix of a large vocabulary.

Axes: N, selected tokens; H, hidden; V, vocabulary. The convention of the whole stream: log_softmax(logits / T) in
float32, T being the temperature the tokens were sampled at.
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
    """One value for each selected token."""

    logprobs: Tensor  # [N] float32
    entropy: Tensor  # [N] float32, nats; zeros when it was not asked for


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
    num_chunks: int = 1,
) -> TokenScores:
    """Score `targets` under `head(hidden)`, calling the head once for each of `num_chunks` nearly equal chunks.

    `entropy` is not computed ("none"), a constant ("value") or differentiable ("gradient"). With more than one chunk
    and gradients on, a chunk's logits are dropped and computed again in the backward pass. A chunk may be empty: under
    ZeRO 3 each call gathers the head's weights, so ranks with fewer tokens must call it just as often.
    """
    if hidden_NH.ndim != 2 or targets_N.shape != hidden_NH.shape[:1]:
        raise ValueError(f"expected [N, H] and [N], got {tuple(hidden_NH.shape)} and {tuple(targets_N.shape)}")

    def score(hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        log_softmax = torch.log_softmax(head(hidden).float() / temperature, dim=-1)
        logprobs = log_softmax.gather(-1, targets[:, None])[:, 0]
        if entropy == "none":
            return logprobs, torch.zeros_like(logprobs)
        if entropy == "value":
            log_softmax = log_softmax.detach()
        return logprobs, -(log_softmax.exp() * log_softmax).sum(-1)

    if num_chunks == 1:
        return TokenScores(*score(hidden_NH, targets_N))
    parts: list[tuple[Tensor, Tensor]] = []
    for hidden, targets in zip(hidden_NH.tensor_split(num_chunks), targets_N.tensor_split(num_chunks), strict=True):
        if torch.is_grad_enabled():
            parts.append(checkpoint(score, hidden, targets, use_reentrant=False, preserve_rng_state=False))
        else:
            parts.append(score(hidden, targets))
    return TokenScores(*(torch.cat(column) for column in zip(*parts, strict=True)))
