"""Held-out success of an embedded policy, sampled and greedy, with 0, 4 and 8 rubrics as a hint.

    python -m benchmarks.policy_quality [MODEL] [--rollouts 600] [--json]

MODEL is a Hugging Face folder or a name that `policy.model` takes. One rollout a task, split "held_out", tasks
0 .. rollouts - 1. Batches grow one key-value cache; what a row waits for is masked.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from envs.household.player import CORE_RUBRICS
from envs.household.world import Household
from stream_rl.app.embedded_policy import ensure_policy
from stream_rl.rubrics.guidance import hint_text
from stream_rl.rubrics.vocabulary import builtin
from stream_rl.types import Split, Task

MAX_TURNS = 20
MAX_TOKENS = 8
BATCH = 150


class Quality(msgspec.Struct, frozen=True, kw_only=True):
    """What a set of rollouts came to."""

    success: float  # share of rollouts that reached the goal
    turns: float  # mean turns of an episode
    invalid_frac: float  # share of actions that did nothing
    cut_frac: float  # share of actions that hit the token limit
    rollouts: int  # how many
    seconds: float  # wall time


class Episode:
    """One rollout in progress."""

    def __init__(self, task: Task, hint: str) -> None:
        self.world = Household(max_turns=MAX_TURNS)
        observation = self.world.reset(task, seed=0).text
        self.pending = (f"<|system|>{hint}" if hint else "") + f"<|user|>{observation}<|assistant|>"
        self.turns = self.invalid = self.cut = 0
        self.success = False

    def act(self, action: str, cut: bool) -> bool:
        """Play one action; True when the episode is over."""
        result = self.world.step(action)
        self.turns += 1
        self.invalid += not result.valid
        self.cut += cut
        self.success = result.success
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
    eos = tokenizer.eos_token_id
    context = Context(model, len(episodes))
    live = list(episodes)
    while live:
        logits = context.feed([tokenizer.encode(e.pending, add_special_tokens=False) for e in live])
        actions: list[list[int]] = [[] for _ in live]
        ended = [False] * len(live)
        for count in range(1, MAX_TOKENS + 1):
            chosen = choose(logits, temperature, rng)
            chunks: list[list[int]] = []
            for row, token in enumerate(chosen):
                if not ended[row]:
                    ended[row] = token == eos
                    if not ended[row]:
                        actions[row].append(token)
                chunks.append([] if ended[row] else [token])
            if all(ended):
                break
            if count < MAX_TOKENS:
                logits = context.feed(chunks)
        going = [
            row
            for row, episode in enumerate(live)
            if not episode.act(tokenizer.decode(actions[row]), cut=not ended[row])
        ]
        live = [live[row] for row in going]
        if live:
            context.keep(going)


def choose(logits: Tensor, temperature: float, rng: torch.Generator) -> list[int]:
    """One token a row: sampled, or the likeliest at temperature 0."""
    if temperature == 0:
        return logits.argmax(-1).tolist()
    return torch.multinomial((logits / temperature).softmax(-1), 1, generator=rng)[:, 0].tolist()


def measure(
    model: Any,
    tokenizer: Any,
    *,
    rollouts: int,
    temperature: float,
    num_hints: int = 0,
    split: Split = "held_out",
    seed: int = 0,
) -> Quality:
    """Success over `rollouts` tasks; each rollout is told `num_hints` of the core rubrics, drawn at random."""
    began = time.perf_counter()
    rng = torch.Generator().manual_seed(seed)
    draw = random.Random(seed)
    episodes = [
        Episode(
            Task(environment="household", split=split, index=index),
            hint_text(builtin(), draw.sample(CORE_RUBRICS, num_hints)),
        )
        for index in range(rollouts)
    ]
    for batch in _batches(episodes):
        roll_out(model, tokenizer, batch, temperature, rng)
    turns = sum(e.turns for e in episodes)
    return Quality(
        success=sum(e.success for e in episodes) / rollouts,
        turns=turns / rollouts,
        invalid_frac=sum(e.invalid for e in episodes) / turns,
        cut_frac=sum(e.cut for e in episodes) / turns,
        rollouts=rollouts,
        seconds=time.perf_counter() - began,
    )


def _batches(episodes: list[Episode]) -> Iterator[list[Episode]]:
    for start in range(0, len(episodes), BATCH):
        yield episodes[start : start + BATCH]


def main() -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="embedded")
    parser.add_argument("--rollouts", type=int, default=600)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    began = time.perf_counter()
    folder: Path = ensure_policy(options.model, "pretrained", None, lambda *_: None)
    if not options.json:
        print(f"{folder} ({time.perf_counter() - began:.1f} s to make or find)")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    rows = {}
    for temperature in (1.0, 0.0):
        for num_hints in (0, 4, 8):
            quality = measure(model, tokenizer, rollouts=options.rollouts, temperature=temperature, num_hints=num_hints)
            name = f"{'greedy' if temperature == 0 else 'T=1'}, {num_hints} hints"
            rows[name] = msgspec.to_builtins(quality)
            if not options.json:
                print(
                    f"{name:16} success {quality.success:.3f}  turns {quality.turns:5.2f}  "
                    f"invalid {quality.invalid_frac:.3f}  cut {quality.cut_frac:.3f}  ({quality.seconds:.1f} s)",
                    flush=True,
                )
    if options.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
