"""Batched play of a policy in the household, straight on a Hugging Face model.

Batches grow one key-value cache; what a row waits for is masked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from envs.household.world import Household
from stream_rl.types import StepResult, Task

MAX_TURNS = 20
MAX_TOKENS = 8


class Episode:
    """One rollout in progress."""

    def __init__(self, task: Task, hint: str = "") -> None:
        self.task = task
        self.world = Household(max_turns=MAX_TURNS)
        self.first_prompt = self.world.reset(task, seed=0).text
        self.pending = (f"<|system|>{hint}" if hint else "") + f"<|user|>{self.first_prompt}<|assistant|>"
        self.steps: list[tuple[str, StepResult]] = []
        self.cut = 0

    @property
    def success(self) -> bool:
        """Whether it reached the goal."""
        return bool(self.steps) and self.steps[-1][1].success

    @property
    def invalid(self) -> int:
        """Actions that did nothing."""
        return sum(not result.valid for _, result in self.steps)

    def act(self, action: str, cut: bool) -> bool:
        """Play one action; True when the episode is over."""
        result = self.world.step(action)
        self.steps.append((action, result))
        self.cut += cut
        # The end-of-turn token was sampled last and is not in the cache yet.
        self.pending = f"<|im_end|><|user|>{result.text}<|assistant|>"
        return result.done


class Context:
    """Key-value cache of a batch with rows of unequal length: chunks are left-padded and the padding is masked."""

    def __init__(self, model: Any, num_rows: int) -> None:
        from transformers import DynamicCache

        self._model = model
        self._cache = DynamicCache()
        self._mask = torch.zeros(num_rows, 0, dtype=torch.long)

    def feed(self, chunks: Sequence[Sequence[int]]) -> Tensor:
        """Append `chunks` (a row may get none) and return the logits [rows, vocab] after each row's last token."""
        width = max(1, *(len(chunk) for chunk in chunks))
        ids = torch.tensor([[0] * (width - len(chunk)) + list(chunk) for chunk in chunks])
        fresh = torch.tensor([[0] * (width - len(chunk)) + [1] * len(chunk) for chunk in chunks])
        self._mask = torch.cat([self._mask, fresh], dim=1)
        positions = (self._mask.cumsum(1) - 1).clamp(min=0)[:, -width:]
        output = self._model(
            input_ids=ids,
            attention_mask=self._mask,
            position_ids=positions,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return output.logits[:, -1]  # type: ignore[no-any-return]

    def keep(self, rows: list[int]) -> None:
        """Forget all other rows."""
        index = torch.tensor(rows)
        self._cache.batch_select_indices(index)
        self._mask = self._mask[index]


@torch.inference_mode()
def roll_out(model: Any, tokenizer: Any, episodes: list[Episode], temperature: float, rng: torch.Generator) -> None:
    """Play every episode to its end. Temperature 0 is greedy."""
    context = Context(model, len(episodes))
    live = list(episodes)
    while live:
        chunks = [tokenizer.encode(e.pending, add_special_tokens=False) for e in live]
        actions = sample(context, chunks, MAX_TOKENS, tokenizer.eos_token_id, temperature, rng)
        going = [
            row
            for row, (episode, (ids, ended)) in enumerate(zip(live, actions, strict=True))
            if not episode.act(tokenizer.decode(ids), cut=not ended)
        ]
        live = [live[row] for row in going]
        if live:
            context.keep(going)


@torch.inference_mode()
def sample(
    context: Context,
    chunks: Sequence[Sequence[int]],
    max_tokens: int,
    eos: int,
    temperature: float,
    rng: torch.Generator,
) -> list[tuple[list[int], bool]]:
    """Feed `chunks` and sample one answer a row: (ids before the end of turn, whether it ended in `max_tokens`)."""
    logits = context.feed(chunks)
    answers: list[list[int]] = [[] for _ in chunks]
    ended = [False] * len(chunks)
    for count in range(1, max_tokens + 1):
        fresh: list[list[int]] = []
        for row, token in enumerate(choose(logits, temperature, rng)):
            if not ended[row]:
                ended[row] = token == eos
                if not ended[row]:
                    answers[row].append(token)
            fresh.append([] if ended[row] else [token])
        if all(ended):
            break
        if count < max_tokens:
            logits = context.feed(fresh)
    return list(zip(answers, ended, strict=True))


def choose(logits: Tensor, temperature: float, rng: torch.Generator) -> list[int]:
    """One token a row: sampled, or the likeliest at temperature 0."""
    if temperature == 0:
        return logits.argmax(-1).tolist()
    return torch.multinomial((logits / temperature).softmax(-1), 1, generator=rng)[:, 0].tolist()
