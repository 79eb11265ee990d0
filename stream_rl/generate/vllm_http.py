"""A vLLM server that somebody else runs, behind the generator port: ids in, ids out, over HTTP.

Started by its owner as

    VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --tokens-only --generation-config vllm \
        --logprobs-mode processed_logprobs --weight-transfer-config '{"backend": "stream_rl_files"}' \
        --worker-extension-cls stream_rl.generate.vllm_probe.ProbeExtension

in an environment where this package is installed, so that its workers can read published versions. A server belongs to
one run: whoever attaches it pauses it, loads into it and resumes it.
"""

from __future__ import annotations

import anyio
import anyio.to_thread

from stream_rl.errors import GenerationFailed, GeneratorBroken
from stream_rl.generate import probe, requests, weight_swap
from stream_rl.generate import vllm_http_turns as turns
from stream_rl.generate.base_weights import BaseWeights
from stream_rl.generate.live import LiveWeights
from stream_rl.generate.options import GeneratorOptions, ModelShape, model_shape
from stream_rl.generate.vllm_http_calls import ServerCalls
from stream_rl.generate.vllm_http_inspection import answering, inspect
from stream_rl.generate.vllm_http_session import ServerGone, ServerRefused, ServerSession
from stream_rl.ports import GenerateRequest, GenerateResult
from stream_rl.types import UpdateReport, WeightsManifest

_SERVER_ERROR = 500
UNKNOWN = -1  # version of weights that an earlier process of the run, or whoever started the server, left there


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
            answer = await self._session.post_again(turns.GENERATE, turns.body(request, limit), turns.Answer)
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
        result = turns.result(answer, self._options)
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
        with answering(self._session, self._options):
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
