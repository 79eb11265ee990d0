"""A look at a vLLM server before it is used: whether it serves this run's model, and can take its weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import msgspec
import numpy as np

from stream_rl.errors import ConfigError, GeneratorBroken
from stream_rl.generate import probe
from stream_rl.generate import vllm_http_turns as turns
from stream_rl.generate.options import GeneratorOptions, model_shape
from stream_rl.generate.vllm_http_calls import ServerCalls
from stream_rl.generate.vllm_http_session import ServerGone, ServerRefused, ServerSession
from stream_rl.generate.vllm_probe import EXTENSION
from stream_rl.ports import GenerateRequest

BACKEND = "stream_rl_files"  # `vllm_weights.BACKEND`, which cannot be imported where vLLM is not installed
_START = "start it as docs/generators.md says"
_UNAUTHORISED = 401


class _Model(msgspec.Struct, frozen=True):
    max_model_len: int
    dtype: str
    logprobs_mode: str


class _Parallel(msgspec.Struct, frozen=True):
    worker_extension_cls: str = ""


class _Transfer(msgspec.Struct, frozen=True):
    backend: str = ""


class _Config(msgspec.Struct, frozen=True):
    model_config: _Model
    parallel_config: _Parallel
    weight_transfer_config: _Transfer | None = None


class _Info(msgspec.Struct, frozen=True):
    """Answer of `/server_info`: how the server was started."""

    vllm_config: _Config


async def inspect(session: ServerSession, options: GeneratorOptions) -> int:
    """The version the server says it holds. Samples one token; its workers get ready to read weights.

    Raises `ConfigError` for what it lacks, `GeneratorBroken` for a server nobody reaches, or that is paused.
    """
    with answering(session, options):
        try:
            return await _inspect(session, options)
        except ServerGone as error:
            raise GeneratorBroken(f"no vLLM server can be reached: {error}") from error


@contextmanager
def answering(session: ServerSession, options: GeneratorOptions) -> Iterator[None]:
    """The deadline for all that is asked of a server before it is used."""
    with anyio.move_on_after(options.update_deadline_s) as scope:
        yield
    if scope.cancelled_caught:
        raise GeneratorBroken(f"{session.url}: no answer within {options.update_deadline_s:g} s")


async def _inspect(session: ServerSession, options: GeneratorOptions) -> int:
    calls = ServerCalls(session, options.run_id, options.model)
    try:
        info = await session.get("/server_info?config_format=json", _Info)
        label, paused = await calls.label(), await calls.paused()
    except ServerRefused as error:
        raise _refused(session, error, "take weights", "with VLLM_SERVER_DEV_MODE=1") from error
    _require(session.url, info.vllm_config, options)
    if paused:
        raise GeneratorBroken(
            f"{session.url} is paused: an update was interrupted, and nobody knows what weights it holds; restart it"
        )
    held = turns.version_of(label, options)
    await _require_model(calls, session.url, options.model)
    await _require_tokens(session, options)
    try:
        await session.post("/init_weight_transfer_engine", {"init_info": {}}, dict[str, Any])
    except ServerRefused as error:
        raise ConfigError("generate.servers", f"{session.url} cannot read published weights: {error}.") from error
    return held


async def _require_model(calls: ServerCalls, url: str, model: str) -> None:
    """Versions of this run fit into the model it serves. Which weights those are does not matter: they are replaced."""
    own = model_shape(model)
    try:
        served = await calls.shape()
    except ServerRefused as error:
        raise ConfigError(
            "generate.servers", f"{url} does not say which model it serves ({error}); {_START}, with this stream_rl."
        ) from error
    differ = [
        f"{name} {getattr(served, name)} instead of {value}"
        for name, value in msgspec.structs.asdict(own).items()
        if value is not None and getattr(served, name) != value
    ]
    if differ:
        raise ConfigError(
            "generate.servers", f"{url} serves another model ({', '.join(differ)}): start it over {model}."
        )


async def _require_tokens(session: ServerSession, options: GeneratorOptions) -> None:
    """It samples from ids, for whoever has this key: one token."""
    prompt = probe.prompt(model_shape(options.model).vocab_size)[:4]
    request = GenerateRequest(
        prompt_ids=np.asarray(prompt, dtype=np.int32), max_tokens=1, temperature=1.0, stop_token_ids=()
    )
    try:
        turns.result(await session.post(turns.GENERATE, turns.body(request, 1), turns.Answer), options)
    except ServerRefused as error:
        raise _refused(session, error, "take token ids", "with --tokens-only or --enable-scale-out") from error


def _refused(session: ServerSession, error: ServerRefused, what: str, argument: str) -> ConfigError:
    """It cannot do `what` without `argument`, or not for who has this key."""
    if error.status != _UNAUTHORISED:
        return ConfigError("generate.servers", f"{session.url} cannot {what} ({error}); {_START}: {argument}.")
    sent = f"the key in {session.key_env} is not its own" if session.key_env else "it asks for a key, none was given"
    return ConfigError(
        "generate.key_env", f"{error}: {sent}; name the variable that holds its --api-key (--key-env of `attach`)."
    )


def _require(url: str, config: _Config, options: GeneratorOptions) -> None:
    """The server was started as this needs it; else `ConfigError` with the argument that is missing."""
    model, transfer = config.model_config, config.weight_transfer_config
    backend = transfer.backend if transfer else "none"
    wrong = ""
    if backend != BACKEND:
        argument = f"""--weight-transfer-config '{{"backend": "{BACKEND}"}}'"""
        wrong = f"cannot read published weights (its backend is {backend}): {argument}, stream_rl installed beside vLLM"
    elif config.parallel_config.worker_extension_cls != EXTENSION:
        wrong = f"has no probe in its workers: --worker-extension-cls {EXTENSION}"
    elif model.logprobs_mode != "processed_logprobs":
        wrong = f"reports {model.logprobs_mode}, which ignore the temperature: --logprobs-mode processed_logprobs"
    elif model.dtype.removeprefix("torch.") != options.dtype:
        wrong = f"computes in {model.dtype}, the learner in {options.dtype}: --dtype {options.dtype}"
    elif model.max_model_len < options.max_model_len:
        wrong = f"serves {model.max_model_len} tokens: --max-model-len {options.max_model_len}"
    if wrong:
        raise ConfigError("generate.servers", f"{url} {wrong}. {_START.capitalize()}.")
