"""How well a policy names what tells the rollouts of a group apart: the writing section of `policy_quality`."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import torch

from benchmarks.policy_play import Context, Episode, roll_out, sample
from judge.rules.engine import RULES
from stream_rl.app.embedded_writing import TEMPLATE, findings, record, spreads
from stream_rl.renderer import Renderer
from stream_rl.rubrics.bundles import MAX_CRITERIA, MIN_CRITERIA, parse_bundle
from stream_rl.rubrics.vocabulary import builtin
from stream_rl.rubrics.writing import compose, load_template
from stream_rl.types import Task

CONTEXT_TOKENS = 512
ANSWER_TOKENS = 32

# rubric -> how far a group's members differ in it (`stream_rl.app.embedded_writing.spreads`)
Spread = Mapping[str, float]


class WritingQuality(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy wrote about groups of its own held-out rollouts. Spreads are means over named criteria."""

    usable: float  # share of answers that hold a bundle of 5 to 8 criteria
    known: float  # share of their criteria that are hints of the vocabulary, word for word
    differing: float  # share of their criteria on which the group's members differ
    spread: float  # of the criteria written about a group, in that group; 0 to 0.25
    spread_elsewhere: float  # of the same criteria in the next group: what knowing the frequent ones alone is worth
    spread_random: float  # of criteria drawn from those the rules can decide
    spread_best: float  # of the group's five largest
    groups: int  # how many
    answers: int  # sampled in all
    seconds: float  # wall time


def measure_writing(
    model: Any,
    tokenizer: Any,
    *,
    groups: int,
    size: int = 8,
    answers: int = 4,
    temperature: float = 1.0,
    seed: int = 0,
) -> WritingQuality:
    """Play `groups` held-out tasks `size` times each, and sample `answers` bundles about each."""
    began = time.perf_counter()
    rng = torch.Generator().manual_seed(seed)
    renderer, template = Renderer(tokenizer), load_template(TEMPLATE)
    found: list[Spread] = []
    written: list[list[tuple[str, ...] | None]] = []
    for index in range(groups):
        task = Task(environment="household", split="held_out", index=index)
        episodes = [Episode(task) for _ in range(size)]
        roll_out(model, tokenizer, episodes, 1.0, rng)
        group = [record(task, member, e.first_prompt, e.steps) for member, e in enumerate(episodes)]
        found.append(spreads([findings(trajectory) for trajectory in group]))
        prompt = compose(
            group,
            template,
            budget=CONTEXT_TOKENS - ANSWER_TOKENS,
            count=lambda messages: len(renderer.head(messages)),
        )
        head = renderer.head(prompt.messages)
        sampled = sample(
            Context(model, answers), [head] * answers, ANSWER_TOKENS, tokenizer.eos_token_id, temperature, rng
        )
        written.append([parse_bundle(tokenizer.decode(ids)) for ids, _ in sampled])
    return summarise(found, written, time.perf_counter() - began, random.Random(seed))


def summarise(
    found: Sequence[Spread],
    written: Sequence[Sequence[tuple[str, ...] | None]],
    seconds: float,
    rng: random.Random,
) -> WritingQuality:
    """Hold what was `written` about each group [groups][answers] against the spreads `found` in it and elsewhere."""
    rubric_of = {rubric.hint: rubric.id for rubric in builtin().rubrics}
    here: list[float] = []
    elsewhere: list[float] = []
    unknown = usable = 0
    for index, bundles in enumerate(written):
        for bundle in bundles:
            usable += bundle is not None
            for criterion in bundle or ():
                rubric = rubric_of.get(criterion, "")
                unknown += not rubric
                here.append(found[index].get(rubric, 0.0))
                elsewhere.append(found[(index + 1) % len(found)].get(rubric, 0.0))
    answers = sum(len(bundles) for bundles in written)
    return WritingQuality(
        usable=usable / answers,
        known=1 - unknown / len(here) if here else 0.0,
        differing=_mean([spread > 0 for spread in here]),
        spread=_mean(here),
        spread_elsewhere=_mean(elsewhere),
        spread_random=_mean([s.get(r, 0.0) for s in found for r in rng.sample(tuple(RULES), MAX_CRITERIA)]),
        spread_best=_mean([v for s in found for v in sorted(s.values(), reverse=True)[:MIN_CRITERIA]]),
        groups=len(found),
        answers=answers,
        seconds=seconds,
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
