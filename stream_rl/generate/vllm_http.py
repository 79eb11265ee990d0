"""A vLLM server that somebody else runs, behind the generator port: ids in, ids out, over HTTP.

Started by its owner as

    VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --tokens-only --generation-config vllm \
        --logprobs-mode processed_logprobs --weight-transfer-config '{"backend": "stream_rl_files"}' \
        --worker-extension-cls stream_rl.generate.vllm_probe.ProbeExtension

in an environment where this package is installed, so that its workers can read published versions. A server belongs to
one run: whoever attaches it pauses it, loads into it and resumes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import anyio.to_thread
import msgspec
import numpy as np

from stream_rl.errors import ConfigError, GenerationFailed, GeneratorBroken
from stream_rl.generate import probe, requests, weight_swap
from stream_rl.generate.base_weights import BaseWeights
from stream_rl.generate.live import LiveWeights
from stream_rl.generate.options import GeneratorOptions, ModelShape, model_shape
from stream_rl.generate.vllm_http_calls import ServerCalls, label_of
from stream_rl.generate.vllm_http_session import ServerGone, ServerRefused, ServerSession
from stream_rl.generate.vllm_probe import EXTENSION
from stream_rl.ports import GenerateRequest, GenerateResult
from stream_rl.types import UpdateReport, WeightsManifest

GENERATE = "/inference/v1/generate"
BACKEND = "stream_rl_files"  # `vllm_weights.BACKEND`, which cannot be imported where vLLM is not installed
_START_LABEL = "default"  # what vLLM calls the weights it started with
_START = "start it as docs/generators.md says"
_UNAUTHORISED = 401
_SERVER_ERROR = 500
UNKNOWN = -1  # version of weights that an earlier process of the run, or whoever started the server, left there


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


class _Answer(msgspec.Struct, frozen=True):
    choices: list[_Choice]


class VllmHttpGenerator:
    """Samples at one server. Make one with `start`, end it with `aclose`; the server lives on."""

    engine = "vllm-http"

    def __init__(self, session: ServerSession, options: GeneratorOptions, shape: ModelShape, version: int) -> None:
        self._session = session
        self._options = options
        self._shape = shape
        self._base = BaseWeights(options.model)
        self._live = LiveWeights(options.run_id, version)
        self._updating = anyio.Lock()
        self._probe_prompt = probe.prompt(shape.vocab_size)
        self._deadlines = weight_swap.SwapDeadlines(call_s=options.call_deadline_s, total_s=options.update_deadline_s)

    @classmethod
    async def start(
        cls, url: str, options: GeneratorOptions, *, key_env: str = "", believe: bool = True
    ) -> VllmHttpGenerator:
        """Attach the server at `url`: look at what it serves, and that it can take weights.

        believe: the weights it holds are those its label names; False: they are of version `UNKNOWN` until the first
            update, and nothing is sampled from them

        Raises `ConfigError` for a server that was started differently than this needs, and `GeneratorBroken` for one
        that nobody reaches or that an interrupted update left paused.
        """
        shape = model_shape(options.model)
        session = ServerSession(url, key_env=key_env, connections=options.concurrency + 8)
        try:
            held = await inspect(session, options)
            generator = cls(session, options, shape, held)
            await generator._prove()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await session.aclose()
            raise
        if not believe:
            generator._live = LiveWeights(options.run_id, UNKNOWN)
        return generator

    @property
    def version(self) -> int:
        """Version of the weights that are live, or `UNKNOWN`."""
        return self._live.version

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        """Sample one turn. Any number of calls may run at once; the server batches them."""
        limit = requests.check(request, max_model_len=self._options.max_model_len, vocab_size=self._shape.vocab_size)
        self._refuse_if_poisoned()
        asked = self.version
        if asked == UNKNOWN:
            raise GenerationFailed(f"{self._session.url} has been sent no weights of this run yet; update it first")
        try:
            answer = await self._session.post_again(GENERATE, _body(request, limit), _Answer)
        except ServerGone as error:
            self._refuse_if_poisoned()
            self._live.broke(f"the vLLM server is gone ({error})")
            raise GeneratorBroken(str(self._live.poison)) from error
        except ServerRefused as error:
            self._refuse_if_poisoned()
            if error.status >= _SERVER_ERROR and not await self._session.healthy():
                self._live.broke(f"the vLLM server's engine is gone ({error})")
                raise GeneratorBroken(str(self._live.poison)) from error
            raise
        self._refuse_if_poisoned()
        result = _result(answer, self._options)
        requests.check_versions(result.spans, oldest=asked, newest=self.version)
        return result

    async def update(self, manifest: WeightsManifest) -> UpdateReport:
        """Verify, pause, load, label, probe, resume; requests in flight go on with the new weights.

        The server reads the manifest's file itself, and the base of an adapter: both must see them under one path.
        """
        async with self._updating:
            if not self._live.admit(manifest):
                return UpdateReport(version=self.version, fingerprint=manifest.fingerprint, pause_s=0.0, load_s=0.0)
            found = await anyio.to_thread.run_sync(self._base.verify, manifest)
            done = await weight_swap.swap(self._calls(), manifest, self._live, self._probe_prompt, self._deadlines)
            return UpdateReport(
                version=manifest.version,
                fingerprint=found,
                pause_s=done.pause_s,
                load_s=done.load_s,
                probe=done.probe,
            )

    async def aclose(self) -> None:
        """Leave the server. Requests still running fail; the server drops them when their connections close."""
        if self._live.poison is None:
            self._live.broke("the connection to the vLLM server was closed")
        with anyio.CancelScope(shield=True):
            await self._session.aclose()

    def _calls(self) -> weight_swap.WeightCalls:
        return ServerCalls(self._session, self._options.run_id, self._options.model)

    async def _prove(self) -> None:
        """One pause, one probe, one resume: better now than at the first update."""
        calls = self._calls()
        with _answering(self._session, self._options):
            await calls.pause()
            try:
                said = await calls.probe(self._probe_prompt)
            finally:
                with anyio.CancelScope(shield=True):
                    await calls.resume()
            probe.check(self.version, said)

    def _refuse_if_poisoned(self) -> None:
        if self._live.poison is not None:
            raise GeneratorBroken(self._live.poison)


async def inspect(session: ServerSession, options: GeneratorOptions) -> int:
    """The version the server says it holds. Samples one token; its workers get ready to read weights.

    Raises `ConfigError` for what it lacks, `GeneratorBroken` for a server nobody reaches, or that is paused.
    """
    with _answering(session, options):
        try:
            return await _inspect(session, options)
        except ServerGone as error:
            raise GeneratorBroken(f"no vLLM server can be reached: {error}") from error


@contextmanager
def _answering(session: ServerSession, options: GeneratorOptions) -> Iterator[None]:
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
        if error.status == _UNAUTHORISED:
            raise _unauthorised(session, error) from error
        raise ConfigError(
            "generate.servers",
            f"{session.url} cannot take weights ({error}); {_START}: with VLLM_SERVER_DEV_MODE=1.",
        ) from error
    _require(session.url, info.vllm_config, options)
    if paused:
        raise GeneratorBroken(
            f"{session.url} is paused: an update was interrupted, and nobody knows what weights it holds; restart it"
        )
    held = _number(label, options)
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
        _result(await session.post(GENERATE, _body(request, 1), _Answer), options)
    except ServerRefused as error:
        if error.status == _UNAUTHORISED:
            raise _unauthorised(session, error) from error
        raise ConfigError(
            "generate.servers",
            f"{session.url} does not take token ids ({error}); {_START}: with --tokens-only or --enable-scale-out.",
        ) from error


def _unauthorised(session: ServerSession, error: ServerRefused) -> ConfigError:
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


def _body(request: GenerateRequest, limit: int) -> dict[str, Any]:
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


def _result(answer: _Answer, options: GeneratorOptions) -> GenerateResult:
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
    return [(_number(span.version.removeprefix(own), options), span.end - span.start) for span in spans]


def _number(label: str, options: GeneratorOptions) -> int:
    if label == _START_LABEL:
        return options.version
    if not label.isdecimal():
        raise GeneratorBroken(
            f"the server's weights are labelled {label!r}, those of another run: restart it with the start policy"
        )
    return int(label)
