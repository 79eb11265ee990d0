"""One token a row from a batch of logits. Shapes: B rows, V vocabulary entries."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def sample(
    logits: torch.Tensor, temperatures: torch.Tensor, generators: Sequence[torch.Generator]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids [B] and their log-probabilities [B] under softmax(logits / temperature).

    `logits` [B, V], `temperatures` [B] (0: the largest logit, log-probability at temperature 1), one generator a row;
    rows that share one draw from it in order. Sampling is by the exponential race: with E iid Exp(1), the argmax of
    p / E is distributed as p.
    """
    greedy = temperatures == 0
    scaled = logits.float() / torch.where(greedy, 1.0, temperatures)[:, None]
    logprobs = torch.log_softmax(scaled, dim=-1)
    noise = torch.empty_like(logprobs)
    for first, last in _runs(generators):
        noise[first:last].exponential_(generator=generators[first])
    drawn = (logprobs - noise.log()).argmax(dim=-1)
    token_ids = torch.where(greedy, logprobs.argmax(dim=-1), drawn)
    return token_ids, logprobs.gather(1, token_ids[:, None])[:, 0]


def _runs(generators: Sequence[torch.Generator]) -> list[tuple[int, int]]:
    """Ranges of neighbouring rows that share a generator."""
    starts = [i for i in range(len(generators)) if i == 0 or generators[i] is not generators[i - 1]]
    return list(zip(starts, [*starts[1:], len(generators)], strict=True))
