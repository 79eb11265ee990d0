"""Whether an engine's log-probabilities are those of a plain forward of the same weights: measured, and judged.

What a sampler calls the probability of a token and what the learner computes must be one number, at every temperature;
a ratio of the two is what corrects the training. See docs/generators.md for the settings that keep them together.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import anyio
import anyio.to_thread
import msgspec
import numpy as np
import torch
from transformers import AutoModelForCausalLM

from stream_rl.generate.options import GeneratorOptions, model_shape
from stream_rl.ports import GenerateRequest, GenerateResult, Generator

TEMPERATURES = (1.0, 0.7)
_PROMPTS = 8
_PROMPT_TOKENS = 48
_SAMPLED_TOKENS = 32
# Nats. float32 differs by the order of sums alone (1e-6 to 5e-5 measured), bfloat16 by its 8 bits (up to 0.24).
LIMITS = {"float32": (1e-4, 5e-3), "bfloat16": (0.15, 2.0)}  # mean, max
_OTHER_WEIGHTS = 0.5  # mean, beyond which rounding explains nothing


class Parity(msgspec.Struct, frozen=True, kw_only=True):
    """How far an engine is from a plain forward at one temperature."""

    temperature: float
    num_tokens: int  # compared
    mean: float  # absolute difference, nats
    max: float  # absolute difference, nats


async def measure(generator: Generator, options: GeneratorOptions) -> list[Parity]:
    """Sample a few short turns at each temperature, and compare. Loads the model a second time, for the forward."""
    length = min(_PROMPT_TOKENS, options.max_model_len - 2)
    vocab_size = model_shape(options.model).vocab_size
    numbers = random.Random(0)
    prompts = [[numbers.randrange(vocab_size) for _ in range(length)] for _ in range(_PROMPTS)]
    said: dict[tuple[float, int], GenerateResult] = {}

    async def one(temperature: float, i: int) -> None:
        said[temperature, i] = await generator.generate(
            GenerateRequest(
                prompt_ids=np.asarray(prompts[i], dtype=np.int32),
                max_tokens=_SAMPLED_TOKENS,
                temperature=temperature,
                stop_token_ids=(),
            )
        )

    async with anyio.create_task_group() as tasks:
        for temperature in TEMPERATURES:
            for i in range(_PROMPTS):
                tasks.start_soon(one, temperature, i)
    return await anyio.to_thread.run_sync(_compare, options, prompts, said)


def judge(found: Sequence[Parity], dtype: str) -> str | None:
    """The likely reason why the engine disagrees; None when it does not. `found` holds temperature 1 first."""
    mean, largest = LIMITS[dtype]
    bad = [not (parity.mean <= mean and parity.max <= largest) for parity in found]
    if not any(bad):
        return None
    if not bad[0]:
        return (
            "at temperature 1 they agree: the engine reports log-probabilities of the raw logits, not of the "
            "distribution it samples from; start it with --logprobs-mode processed_logprobs"
        )
    if found[0].mean > _OTHER_WEIGHTS:
        return "the engine serves other weights than this model, or truncates the distribution (top_p, top_k, min_p)"
    return (
        f"more than the rounding of {dtype}: the engine computes in another dtype, quantises, or uses other kernels; "
        'policy.dtype = "float32" makes the difference small, and kl_behavior in the metrics shows what is left'
    )


@torch.inference_mode()
def _compare(
    options: GeneratorOptions, prompts: list[list[int]], said: dict[tuple[float, int], GenerateResult]
) -> list[Parity]:
    torch.set_num_threads(options.threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model: Any = AutoModelForCausalLM.from_pretrained(
        options.model, dtype=getattr(torch, options.dtype), local_files_only=True
    )
    model.to(device).eval()
    found = []
    for temperature in TEMPERATURES:
        differences = []
        for i, prompt in enumerate(prompts):
            result = said[temperature, i]
            ids = torch.tensor([[*prompt, *result.token_ids.tolist()]], device=device)
            logits = model(ids, use_cache=False).logits[0, len(prompt) - 1 : -1].float()
            table = torch.log_softmax(logits / temperature, dim=-1)
            expected = table.gather(1, ids[0, len(prompt) :, None])[:, 0].cpu().numpy()
            differences.append(np.abs(result.logprobs - expected))
        all_of_them = np.concatenate(differences)
        found.append(
            Parity(
                temperature=temperature,
                num_tokens=len(all_of_them),
                mean=float(all_of_them.mean()),
                max=float(all_of_them.max()),
            )
        )
    return found
