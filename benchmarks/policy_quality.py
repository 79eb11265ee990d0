"""Held-out success of an embedded policy, sampled and greedy, with 0, 4 and 8 rubrics as a hint; and its writing.

    python -m benchmarks.policy_quality [MODEL] [--rollouts 600] [--groups 60] [--json]

MODEL is a Hugging Face folder or a name that `policy.model` takes. One rollout a task, split "held_out", tasks
0 .. rollouts - 1. The writing section plays tasks 0 .. groups - 1 eight times each and asks for four bundles about
each group. 0 rollouts or groups leaves a section out.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import torch

from benchmarks.policy_play import Episode, roll_out
from benchmarks.writing_quality import WritingQuality, measure_writing
from envs.household.player import CORE_RUBRICS
from stream_rl.app.embedded_policy import ensure_policy
from stream_rl.rubrics.guidance import hint_text
from stream_rl.rubrics.vocabulary import builtin
from stream_rl.types import Split, Task

BATCH = 150


class Quality(msgspec.Struct, frozen=True, kw_only=True):
    """What a set of rollouts came to."""

    success: float  # share of rollouts that reached the goal
    turns: float  # mean turns of an episode
    invalid_frac: float  # share of actions that did nothing
    cut_frac: float  # share of actions that hit the token limit
    rollouts: int  # how many
    seconds: float  # wall time


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
    turns = sum(len(e.steps) for e in episodes)
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
    parser.add_argument("--groups", type=int, default=60)
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
    for temperature in (1.0, 0.0) if options.rollouts else ():
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
    if options.groups:
        writing = measure_writing(model, tokenizer, groups=options.groups)
        rows["writing"] = msgspec.to_builtins(writing)
        if not options.json:
            print(in_words(writing))
    if options.json:
        print(json.dumps(rows))


def in_words(writing: WritingQuality) -> str:
    """The writing section for a reader."""
    return (
        f"{'writing, T=1':16} usable {writing.usable:.3f}  known {writing.known:.3f}  "
        f"differing {writing.differing:.3f}  spread {writing.spread:.4f} "
        f"(elsewhere {writing.spread_elsewhere:.4f}, random {writing.spread_random:.4f}, "
        f"best five {writing.spread_best:.4f})  {writing.answers} answers, {writing.groups} groups  "
        f"({writing.seconds:.1f} s)"
    )


if __name__ == "__main__":
    main()
