"""What may be asked of a generator, and how what was sampled is checked. Pure; the same for every engine."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from stream_rl.errors import GenerationFailed, GeneratorBroken
from stream_rl.ports import GenerateRequest
from stream_rl.types import FloatArray, VersionSpan

MIN_TEMPERATURE = 0.01  # vLLM silently raises lower ones to this
_ROUNDING = 1e-4  # a token that is certain may come out a little above 0


def check(request: GenerateRequest, *, max_model_len: int, vocab_size: int) -> int:
    """How many tokens may be sampled: the request's limit, or what the model's length leaves.

    Raises `GenerationFailed` for a request no engine can serve. Temperature 0 is greedy, its log-probabilities are
    those at temperature 1.
    """
    num_prompt = len(request.prompt_ids)
    if num_prompt == 0:
        raise GenerationFailed("the prompt is empty; a generator needs at least one token id")
    if request.max_tokens < 1:
        raise GenerationFailed(f"max_tokens is {request.max_tokens}; expected at least 1")
    if num_prompt >= max_model_len:
        raise GenerationFailed(f"the prompt has {num_prompt} tokens; max_model_len {max_model_len} leaves no room")
    if request.temperature != 0.0 and not request.temperature >= MIN_TEMPERATURE:
        raise GenerationFailed(f"temperature is {request.temperature}; expected 0 (greedy) or at least 0.01")
    low, high = int(request.prompt_ids.min()), int(request.prompt_ids.max())
    if low < 0 or high >= vocab_size:
        raise GenerationFailed(f"the prompt holds ids from {low} to {high}; the vocabulary has {vocab_size} entries")
    return min(request.max_tokens, max_model_len - num_prompt)


def merge_spans(spans: Iterable[tuple[int, int]]) -> tuple[VersionSpan, ...]:
    """Spans of (version, number of tokens) in order, neighbours of one version joined, empty ones dropped.

    >>> [(span.version, span.num_tokens) for span in merge_spans([(0, 2), (0, 1), (1, 0), (2, 3)])]
    [(0, 3), (2, 3)]
    """
    merged: list[tuple[int, int]] = []
    for version, num_tokens in spans:
        if num_tokens == 0:
            continue
        if merged and merged[-1][0] == version:
            merged[-1] = (version, merged[-1][1] + num_tokens)
        else:
            merged.append((version, num_tokens))
    return tuple(VersionSpan(version=version, num_tokens=num_tokens) for version, num_tokens in merged)


def check_spans(spans: tuple[VersionSpan, ...], num_tokens: int) -> None:
    """Every sampled token has exactly one version, and versions never go back; else `GenerationFailed`."""
    counted = sum(span.num_tokens for span in spans)
    versions = [span.version for span in spans]
    if counted != num_tokens or versions != sorted(versions):
        told = ", ".join(f"{span.num_tokens} of version {span.version}" for span in spans)
        raise GenerationFailed(f"{num_tokens} tokens were sampled, but the engine accounts for {told or 'none'}")


def check_versions(spans: tuple[VersionSpan, ...], *, oldest: int, newest: int) -> None:
    """The engine's own labels lie between the versions live at the call and at the delivery; else `GeneratorBroken`.

    A result that comes late, after an update it had ended before, is older than what is live: that is in order.
    """
    for span in spans:
        if not oldest <= span.version <= newest:
            raise GeneratorBroken(
                f"the engine labels {span.num_tokens} tokens with version {span.version}, but version {oldest} was "
                f"live when they were asked for and {newest} when they came"
            )


def check_logprobs(logprobs: FloatArray) -> None:
    """Log-probabilities are finite and not above 0, up to rounding; else `GenerationFailed`: the weights are bad."""
    if len(logprobs) and not (np.isfinite(logprobs).all() and float(logprobs.max()) < _ROUNDING):
        raise GenerationFailed(
            f"log-probabilities must be finite and at most 0; sampled tokens have {logprobs.min()} to {logprobs.max()}"
        )
