"""The vLLM engine behind the generator port: `AsyncLLM`, on a GPU or with vLLM's CPU build.

Ids in, ids out; vLLM's tokenizer is never loaded. Every token's version is vLLM's own label of the weights that
sampled it, not a guess of this process.

An update pauses the scheduler, keeps the requests and drops all keys and values. What was in flight is computed
again under the new weights (in the order of one prefill each), so every later token is sampled from the new policy
alone, and its log-probability is that of the new weights given the whole text. Keeping the cache would make the pause
shorter, but in-flight turns would continue on stale keys, and the next turn of every session would have to recompute
its prompt anyway.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import numpy as np

from stream_rl.causes import in_words
from stream_rl.errors import GenerationFailed, GeneratorBroken
from stream_rl.generate import probe, requests, weight_swap
from stream_rl.generate.base_weights import BaseWeights
from stream_rl.generate.live import LiveWeights
from stream_rl.generate.options import GeneratorOptions, ModelShape, model_shape
from stream_rl.generate.vllm_calls import EngineCalls
from stream_rl.generate.weights_nccl import NcclCalls
from stream_rl.link.zmq_link import session_route
from stream_rl.ports import GenerateRequest, GenerateResult
from stream_rl.types import UpdateReport, WeightsManifest

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

_START_LABEL = "default"  # what vLLM calls the weights it started with
_SHUTDOWN_DEADLINE_S = 10.0
_BLOCK_TOKENS = 32
_MIN_CACHE_BYTES = 64 << 20
_MAX_CACHE_BYTES = 4 << 30  # beyond this vLLM preempts; nobody's laptop is filled by a long max_model_len

logger = logging.getLogger(__name__)


class VllmGenerator:
    """Samples with vLLM. Make one with `start`, end it with `aclose`."""

    engine = "vllm"

    def __init__(self, llm: AsyncLLM, options: GeneratorOptions, shape: ModelShape) -> None:
        self._engine: AsyncLLM | None = llm
        self._options = options
        self._shape = shape
        self._base = BaseWeights(options.model)
        self._live = LiveWeights(options.run_id, options.version)
        self._updating = anyio.Lock()
        self._names = itertools.count()
        self._session = session_route()  # names this process to a learner that sends weights over NCCL
        self._probe_prompt = probe.prompt(shape.vocab_size)
        self._deadlines = weight_swap.SwapDeadlines(call_s=options.call_deadline_s, total_s=options.update_deadline_s)

    @classmethod
    async def start(cls, options: GeneratorOptions) -> VllmGenerator:
        """Load the model in an engine process of its own (10 to 20 s on the CPU); the event loop keeps running."""
        shape = model_shape(options.model)
        llm = await anyio.to_thread.run_sync(_start_engine, options, shape)
        generator = cls(llm, options, shape)
        try:
            from vllm.distributed.weight_transfer.base import WeightTransferInitRequest

            if options.transport != "nccl":  # there the learner's first call does it
                await llm.init_weight_transfer_engine(WeightTransferInitRequest({}))
        except BaseException:
            await generator.aclose()
            raise
        return generator

    @property
    def version(self) -> int:
        """Version of the weights that are live."""
        return self._live.version

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        """Sample one turn. Any number of calls may run at once; vLLM batches them."""
        limit = requests.check(request, max_model_len=self._options.max_model_len, vocab_size=self._shape.vocab_size)
        self._refuse_if_poisoned()
        asked = self.version
        output = await self._run(request, limit)
        result = self._result(output)
        requests.check_versions(result.spans, oldest=asked, newest=self.version)
        return result

    async def update(self, manifest: WeightsManifest) -> UpdateReport:
        """Verify, pause, load, label, probe, resume; requests in flight go on with the new weights.

        A refusal before loading leaves the engine as it was. A failure after loading began poisons it: the weights in
        memory are those of no version, no token is sampled from them, and every call fails.
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
        """End the engine's processes. Requests still running fail."""
        self._live.broke("the vLLM engine was closed")
        llm, self._engine = self._engine, None  # dropped: vLLM's finaliser must not run when the interpreter ends
        if llm is None:
            return
        from vllm.v1.engine.exceptions import EngineDeadError

        with anyio.CancelScope(shield=True):
            if llm.output_handler is not None:  # before the process ends, which it would report as a failure
                llm.output_handler.cancel()
                await asyncio.wait({llm.output_handler})
            llm.output_processor.propagate_error(EngineDeadError())
            await anyio.to_thread.run_sync(llm.shutdown, _SHUTDOWN_DEADLINE_S)
            with anyio.move_on_after(_SHUTDOWN_DEADLINE_S):  # vLLM closes its sockets and leaves their context open
                await anyio.to_thread.run_sync(llm.engine_core.resources.ctx.term, abandon_on_cancel=True)

    @property
    def _llm(self) -> AsyncLLM:
        if self._engine is None:
            raise GeneratorBroken(f"{self._live.poison}; restart the generator")
        return self._engine

    def _calls(self) -> weight_swap.WeightCalls:
        if self._options.transport == "nccl":
            return NcclCalls(self._llm, self._session)
        return EngineCalls(self._llm, self._options.model)

    async def _run(self, request: GenerateRequest, limit: int) -> Any:
        from vllm.inputs.engine import tokens_input
        from vllm.v1.engine.exceptions import EngineDeadError

        sampling = _sampling(limit, request.temperature, request.stop_token_ids, request.seed)
        prompt = tokens_input(request.prompt_ids.tolist())
        name = str(next(self._names))
        final = None
        try:
            async for output in self._llm.generate(prompt, sampling, name):
                final = output
        except EngineDeadError as error:
            if self._live.poison is None:
                self._live.broke("the vLLM engine process died; its last words are in this role's log")
            raise GeneratorBroken(str(self._live.poison)) from error
        except GeneratorBroken:
            raise
        except Exception as error:
            raise GenerationFailed(f"vLLM could not serve the request: {in_words(error)}") from error
        self._refuse_if_poisoned()  # a failed update ends requests, and says why
        if final is None or final.outputs[0].finish_reason not in ("stop", "length"):
            reason = "without output" if final is None else f"with {final.outputs[0].finish_reason!r}"
            raise GenerationFailed(f"vLLM ended the request {reason}")
        return final.outputs[0]

    def _result(self, output: Any) -> GenerateResult:
        token_ids = np.asarray(output.token_ids, dtype=np.int32)
        spans = requests.merge_spans(
            (self._number(span.version), span.end - span.start) for span in output.weight_versions or ()
        )
        requests.check_spans(spans, len(token_ids))
        if len(output.logprobs) != len(token_ids):
            raise GenerationFailed(f"vLLM gave {len(output.logprobs)} log-probabilities for {len(token_ids)} tokens")
        # Flat layout with no alternatives asked for: the sampled token's entry comes first at each position.
        logprobs = np.asarray([output.logprobs.logprobs[i] for i in output.logprobs.start_indices], dtype=np.float32)
        requests.check_logprobs(logprobs)
        return GenerateResult(token_ids=token_ids, logprobs=logprobs, spans=spans, cut=output.finish_reason == "length")

    def _number(self, label: str) -> int:
        if label == _START_LABEL:
            return self._options.version
        if not label.isdigit():
            raise GenerationFailed(f"vLLM labels tokens with {label!r}, which is no version this process has set")
        return int(label)

    def _refuse_if_poisoned(self) -> None:
        if self._live.poison is not None:
            raise GeneratorBroken(f"{self._live.poison}; restart the generator")


@lru_cache(maxsize=256)
def _sampling(limit: int, temperature: float, stop_token_ids: tuple[int, ...], seed: int | None) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        temperature=temperature,
        max_tokens=limit,
        stop_token_ids=list(stop_token_ids),
        ignore_eos=True,  # only the request's own stop tokens end a turn
        seed=seed,
        logprobs=0,  # the sampled token's, and no alternatives
        flat_logprobs=True,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,  # the final output carries all tokens and all version spans
        skip_clone=True,  # vLLM leaves a request's parameters as they are once the defaults are filled in
    )


def _start_engine(options: GeneratorOptions, shape: ModelShape) -> AsyncLLM:
    """Blocking; runs in a worker thread."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of imports of vLLM and torch: nothing a user of this project can act on
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.platforms import current_platform
        from vllm.v1.engine.async_llm import AsyncLLM

        on_cpu = bool(current_platform.is_cpu())
        with _environment(_cpu_environment(options) if on_cpu else {}):
            return AsyncLLM.from_engine_args(AsyncEngineArgs(**engine_arguments(options, shape, on_cpu=on_cpu)))


def engine_arguments(options: GeneratorOptions, shape: ModelShape, *, on_cpu: bool) -> dict[str, Any]:
    """Arguments of vLLM's engine. Measured choices are those of `benchmarks/generators.py`."""
    from vllm.config import WeightTransferConfig

    from stream_rl.generate.vllm_probe import EXTENSION
    from stream_rl.generate.vllm_weights import BACKEND, NCCL_BACKEND

    backend = NCCL_BACKEND if options.transport == "nccl" else BACKEND
    arguments: dict[str, Any] = {
        "model": options.model,
        "dtype": options.dtype,
        "seed": options.seed,
        "max_model_len": options.max_model_len,
        "max_num_seqs": options.concurrency,
        "skip_tokenizer_init": True,
        "generation_config": "vllm",  # not the model folder's: nothing but the request decides how it is sampled
        "logprobs_mode": "processed_logprobs",  # of the distribution sampled from, temperature included
        "enable_prefix_caching": True,
        "weight_transfer_config": WeightTransferConfig(backend=backend),
        "worker_extension_cls": EXTENSION,
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
    }
    if on_cpu:
        arguments |= {
            # Compiled, a micro model saves 5 % a turn and starts 15 s later.
            "enforce_eager": True,
            "kv_cache_memory_bytes": cache_bytes(options, shape),
            # The smallest block CPU attention takes. The default of 128 costs half the throughput on turns that
            # extend prompts of 60 to 220 tokens: only whole blocks are found in the prefix cache.
            "block_size": min(_BLOCK_TOKENS, options.max_model_len),
            # With `_cpu_environment`: the model runs inside the scheduler's process. As a worker of its own it spins
            # on shared memory between steps and doubles the CPU time of a turn.
            "distributed_executor_backend": "uni",
        }
    return arguments


def cache_bytes(options: GeneratorOptions, shape: ModelShape) -> int:
    """Room for every concurrent sequence at full length, within 64 MiB and 4 GiB.

    Turns seldom reach the full length; what they leave holds the prefixes of sessions that wait for their world.
    """
    need = options.concurrency * options.max_model_len * shape.cache_bytes_per_token(options.dtype)
    return max(_MIN_CACHE_BYTES, min(need, _MAX_CACHE_BYTES))


def _cpu_environment(options: GeneratorOptions) -> dict[str, str]:
    return {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # lets the engine process run the model itself ("uni" above)
        "OMP_NUM_THREADS": str(options.threads),  # vLLM sets no thread count in that layout
        "PYTHONWARNINGS": "ignore",  # of the engine process
    }


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Variables that the engine process inherits; this process gets its own back."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
