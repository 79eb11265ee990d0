"""One turn at a vLLM server on the wire: what is asked, and what an answer must hold to be trained on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np

from stream_rl.errors import GenerationFailed, GeneratorBroken
from stream_rl.generate import requests
from stream_rl.generate.options import GeneratorOptions
from stream_rl.generate.vllm_http_calls import label_of
from stream_rl.ports import GenerateRequest, GenerateResult

GENERATE = "/inference/v1/generate"
_START_LABEL = "default"  # what vLLM calls the weights it started with


class _Token(msgspec.Struct, frozen=True):
    token_id: int
    logprob: float


class _Logprobs(msgspec.Struct, frozen=True):
    content: list[_Token] | None = None


class _Span(msgspec.Struct, frozen=True):
    version: str
    start: int
    end: int


class _Choice(msgspec.Struct, frozen=True):
    token_ids: list[int] | None = None
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None
    weight_versions: list[_Span] | None = None


class Answer(msgspec.Struct, frozen=True):
    """What `GENERATE` answers."""

    choices: list[_Choice]


def body(request: GenerateRequest, limit: int) -> dict[str, Any]:
    """The request of one turn of at most `limit` tokens."""
    return {
        "token_ids": request.prompt_ids.tolist(),
        "sampling_params": {
            "temperature": request.temperature,
            "max_tokens": limit,
            "stop_token_ids": list(request.stop_token_ids),
            "ignore_eos": True,  # only the request's own stop tokens end a turn
            "seed": request.seed,
            "logprobs": 0,  # the sampled token's, and no alternatives
            "detokenize": False,
        },
    }


def result(answer: Answer, options: GeneratorOptions) -> GenerateResult:
    """The turn. Raises `GenerationFailed` for one that is not whole, `GeneratorBroken` for weights of another run."""
    if len(answer.choices) != 1:
        raise GenerationFailed(f"the server gave {len(answer.choices)} answers to one request")
    (choice,) = answer.choices
    if choice.finish_reason not in ("stop", "length"):
        raise GenerationFailed(f"the server ended the request with {choice.finish_reason!r}")
    content = (choice.logprobs and choice.logprobs.content) or []
    token_ids = choice.token_ids or []
    if [token.token_id for token in content] != token_ids:
        raise GenerationFailed(f"the server gave log-probabilities of other tokens than its {len(token_ids)}")
    spans = requests.merge_spans(_spans(choice.weight_versions or (), options))
    requests.check_spans(spans, len(token_ids))
    logprobs = np.asarray([token.logprob for token in content], dtype=np.float32)
    requests.check_logprobs(logprobs)
    return GenerateResult(
        token_ids=np.asarray(token_ids, dtype=np.int32),
        logprobs=logprobs,
        spans=spans,
        cut=choice.finish_reason == "length",
    )


def _spans(spans: Iterable[_Span], options: GeneratorOptions) -> Iterable[tuple[int, int]]:
    own = label_of(options.run_id, "")
    return [(version_of(span.version.removeprefix(own), options), span.end - span.start) for span in spans]


def version_of(label: str, options: GeneratorOptions) -> int:
    """The version a label names, the run's prefix left out. Raises `GeneratorBroken` for one of another run."""
    if label == _START_LABEL:
        return options.version
    if not label.isdecimal():
        raise GeneratorBroken(
            f"the server's weights are labelled {label!r}, those of another run: restart it with the start policy"
        )
    return int(label)
