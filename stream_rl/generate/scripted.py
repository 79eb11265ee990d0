"""A generator without a model: what it says is a function of the prompt. For simulation and tests.

It keeps the whole contract of the port: stop tokens, limits, exact spans, manifests that are verified.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import anyio
import anyio.to_thread
import numpy as np

from stream_rl import fingerprint
from stream_rl.errors import GenerationFailed, GeneratorBroken
from stream_rl.generate import requests
from stream_rl.generate.live import LiveWeights
from stream_rl.ports import GenerateRequest, GenerateResult
from stream_rl.types import UpdateReport, WeightsManifest

Script = Callable[[tuple[int, ...]], Sequence[int]]  # prompt ids -> ids to say, cut at a stop token or the limit
Seconds = Callable[[tuple[int, ...]], float]  # prompt ids -> seconds


def no_time(prompt_ids: tuple[int, ...]) -> float:
    """Every step takes no time."""
    return 0.0


class ScriptedGenerator:
    """Says what `script` says. Every token's log-probability is `logprob`; with the default they are certain.

    `prefill_s` and `token_s` give the time before the first token and of each token; `load_s` is the pause of an
    update, in which no request gets a token. All of it is slept on anyio's clock.
    """

    engine = "scripted"

    def __init__(
        self,
        script: Script,
        *,
        run_id: str,
        version: int = 0,
        vocab_size: int = 2**31 - 1,
        max_model_len: int = 2**31 - 1,
        prefill_s: Seconds = no_time,
        token_s: Seconds = no_time,
        load_s: float = 0.0,
        logprob: float = 0.0,
    ) -> None:
        self._script = script
        self._live = LiveWeights(run_id, version)
        self._vocab_size = vocab_size
        self._max_model_len = max_model_len
        self._prefill_s = prefill_s
        self._token_s = token_s
        self._load_s = load_s
        self._logprob = logprob
        self._updating = anyio.Lock()
        self._running = anyio.Event()
        self._running.set()

    @property
    def version(self) -> int:
        """Version the next token will carry."""
        return self._live.version

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        """Say the script's answer to this prompt, token by token."""
        limit = requests.check(request, max_model_len=self._max_model_len, vocab_size=self._vocab_size)
        self._refuse_if_closed()
        prompt = tuple(request.prompt_ids.tolist())
        said: list[int] = []
        spans: list[tuple[int, int]] = []
        stopped = False
        await anyio.sleep(self._prefill_s(prompt))
        for token in self._script(prompt)[:limit]:
            await anyio.sleep(self._token_s(prompt))
            await self._running.wait()
            self._refuse_if_closed()
            said.append(token)
            spans.append((self.version, 1))
            if token in request.stop_token_ids:
                stopped = True
                break
        if not stopped and len(said) < limit:
            raise GenerationFailed(
                f"the script's answer ended after {len(said)} tokens without a stop token; the limit was {limit}"
            )
        return GenerateResult(
            token_ids=np.asarray(said, dtype=np.int32),
            logprobs=np.full(len(said), self._logprob, dtype=np.float32),
            spans=requests.merge_spans(spans),
            cut=not stopped,
        )

    async def update(self, manifest: WeightsManifest) -> UpdateReport:
        """Verify the manifest's file, pause for `load_s`, and label later tokens with its version."""
        async with self._updating:
            if not self._live.admit(manifest):
                return UpdateReport(version=self.version, fingerprint=manifest.fingerprint, pause_s=0.0, load_s=0.0)
            found = await anyio.to_thread.run_sync(fingerprint.verify, manifest)
            self._running = anyio.Event()
            try:
                await anyio.sleep(self._load_s)
                self._live.loaded(manifest)
            finally:
                self._running.set()
            return UpdateReport(version=manifest.version, fingerprint=found, pause_s=self._load_s, load_s=self._load_s)

    async def aclose(self) -> None:
        """End every answer that is under way."""
        self._live.broke("the scripted generator was closed")

    def _refuse_if_closed(self) -> None:
        if self._live.poison is not None:
            raise GeneratorBroken(self._live.poison)
