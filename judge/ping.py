"""Does an endpoint judge? One real tagging request, and one sentence about what is wrong."""

from __future__ import annotations

import difflib
import os
import time
from collections.abc import Mapping

import msgspec

from judge.endpoint import AttemptFailed, Endpoint
from judge.parse import parse_reply
from judge.prompt import subset
from judge.session import new_session
from judge.transcript import Transcript, TranscriptTurn, quote
from stream_rl.config import JudgeEndpoint
from stream_rl.errors import ConfigError
from stream_rl.rubrics.vocabulary import builtin

_RUBRIC = "precision.valid_actions"
_SAMPLE = Transcript(
    task="You are in the middle of a room. You see desk 1, drawer 1. Your task is to: put some book in desk.",
    turns=(TranscriptTurn(turn=1, action="open desk 1", observation="Nothing happens.", valid=False),),
)


class PingReport(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a ping."""

    url: str  # base address asked
    ok: bool  # it answered a tagging request in the asked form
    latency_s: float  # until the answer or the failure
    model: str  # as the endpoint names it; the configured name if it did not answer
    problem: str = ""  # what is wrong and what to do; empty if ok


async def ping(config: JudgeEndpoint, *, index: int = 0, environ: Mapping[str, str] = os.environ) -> PingReport:
    """Ask an endpoint to tag one tiny transcript. Never raises for what is wrong with the endpoint."""
    started = time.monotonic()
    model, problem = config.model, ""
    async with new_session(1) as session:
        try:
            endpoint = Endpoint(config, session, index=index, environ=environ)
            prompt = subset(builtin(), (_RUBRIC,))
            answer = await endpoint.complete(prompt, quote(_SAMPLE), config.deadline_s)
            model = answer.model
            if parse_reply(answer.content, prompt.rubric_ids).missing:
                shown = " ".join(answer.content.split())[:100]
                problem = f"it answers, but not with the JSON asked for (it said {shown!r}); choose another model."
        except ConfigError as error:
            problem = str(error)
        except AttemptFailed as failure:
            problem = await _advice(failure, config, endpoint)
        latency_s = time.monotonic() - started
    return PingReport(url=config.url, ok=not problem, latency_s=latency_s, model=model, problem=problem)


async def _advice(failure: AttemptFailed, config: JudgeEndpoint, endpoint: Endpoint) -> str:
    said = str(failure)
    match failure.kind:
        case "unreachable":
            return f"{said}; start the server, or correct the address {config.url}."
        case "slow":
            return f"{said}; raise deadline_s, or take a faster model."
        case "busy":
            return f"{said}; wait, or set requests_per_minute and tokens_per_minute to what the account allows."
        case "server":
            return f"{said}; the server itself fails, see its log."
        case "key" if config.key_env:
            return f"{said}; the key in {config.key_env} is not accepted for {config.url}."
        case "key":
            return f"{said}; it wants a key: set key_env to the name of the variable that holds it."
        case "not_found":
            return f"{said}; {await _wrong_name(config, endpoint)}"
        case "format":
            return f"{said}; the address does not speak the OpenAI protocol, it usually ends in /v1."
    return f"{said}; the request was refused, see the server's documentation."


async def _wrong_name(config: JudgeEndpoint, endpoint: Endpoint) -> str:
    models = await endpoint.models(config.deadline_s)
    if not models:
        return f"wrong path? {config.url} should be the base address, usually ending in /v1."
    if config.model in models:
        return f"it lists the model {config.model!r} but has no chat completions; it may serve embeddings only."
    near = difflib.get_close_matches(config.model, models, n=1, cutoff=0.3)
    return f"wrong model? It serves {', '.join(models[:5])}" + (f"; did you mean {near[0]!r}?" if near else ".")
