"""A plain transformers model behind the generator port: for machines without vLLM, and for tests.

Requests are served in ticks. A tick takes what waits, computes what is new of each prompt, and samples a few tokens
for all of them together; a sequence that is not done waits for the next tick like a new one, with its keys and values
kept. Weights change between ticks only, so every token of a tick has one version.

There is no background task: one of the waiting callers runs the tick, the others wait for it.
"""

from __future__ import annotations

import threading
import time

import anyio
import anyio.to_thread
import numpy as np

from stream_rl.causes import in_words
from stream_rl.errors import GeneratorBroken, WeightsRejected
from stream_rl.generate import probe, requests
from stream_rl.generate.base_weights import BaseWeights
from stream_rl.generate.batch_model import BatchModel, Row
from stream_rl.generate.live import LiveWeights
from stream_rl.generate.options import GeneratorOptions, model_shape
from stream_rl.ports import GenerateRequest, GenerateResult
from stream_rl.types import UpdateReport, WeightsManifest

_TICK_STEPS = 16  # a request that comes during a tick waits for at most this many tokens of the others


class _Ticket:
    """One call of `generate` while it waits."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.spans: list[tuple[int, int]] = []
        self.failure: str | None = None
        self.turn = anyio.Event()  # set when the row is done, or when this caller should run a tick

    @property
    def over(self) -> bool:
        return self.row.done or self.failure is not None


class TransformersGenerator:
    """Samples with a Hugging Face model in a worker thread. Make one with `start`, end it with `aclose`."""

    engine = "transformers"

    def __init__(self, model: BatchModel, options: GeneratorOptions) -> None:
        self._model = model
        self._options = options
        self._vocab_size = model_shape(options.model).vocab_size
        self._probe_prompt = probe.prompt(self._vocab_size)
        self._base = BaseWeights(options.model)
        self._live = LiveWeights(options.run_id, options.version)
        self._waiting: list[_Ticket] = []
        self._ticking = False
        self._compute = anyio.Lock()  # the model: one tick or one load at a time
        self._updating = anyio.Lock()
        self._interrupt = threading.Event()  # ends a tick after its current token

    @classmethod
    async def start(cls, options: GeneratorOptions) -> TransformersGenerator:
        """Load the model (a few seconds); the event loop keeps running."""
        return cls(await anyio.to_thread.run_sync(BatchModel, options), options)

    @property
    def version(self) -> int:
        """Version of the weights that are live."""
        return self._live.version

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        """Sample one turn. Any number of calls may run at once; ticks batch them."""
        limit = requests.check(request, max_model_len=self._options.max_model_len, vocab_size=self._vocab_size)
        ticket = _Ticket(
            Row(
                request.prompt_ids.tolist(),
                limit,
                request.temperature,
                frozenset(request.stop_token_ids),
                self._model.seeded(request.seed),
            )
        )
        self._waiting.append(ticket)
        try:
            while not ticket.over:
                if self._ticking:
                    ticket.turn = anyio.Event()
                    await ticket.turn.wait()
                else:
                    await self._tick()
        finally:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
            self._hand_over()
        return self._result(ticket)

    async def update(self, manifest: WeightsManifest) -> UpdateReport:
        """Verify, end the running tick after its current token, load; then ticks go on with empty caches."""
        async with self._updating:
            if not self._live.admit(manifest):
                return UpdateReport(version=self.version, fingerprint=manifest.fingerprint, pause_s=0.0, load_s=0.0)
            found = await anyio.to_thread.run_sync(self._base.verify, manifest)
            paused = time.monotonic()
            self._interrupt.set()
            try:
                async with self._compute:
                    began = time.monotonic()
                    said = await self._load(manifest)
                    ended = time.monotonic()
            finally:
                self._interrupt.clear()
            return UpdateReport(
                version=manifest.version, fingerprint=found, pause_s=ended - paused, load_s=ended - began, probe=said
            )

    async def aclose(self) -> None:
        """Wait for the running tick; whoever still waits fails."""
        self._live.broke("the transformers generator was closed")
        self._interrupt.set()
        with anyio.CancelScope(shield=True):
            async with self._compute:
                pass

    async def _tick(self) -> None:
        """Consumes: what waits. Waits for: the model. Produces: tokens of one version. Unblocked by: the worker."""
        self._ticking = True
        try:
            async with self._compute:
                tickets = [ticket for ticket in self._waiting if not ticket.over][: self._options.concurrency]
                before = [len(ticket.row.logprobs) for ticket in tickets]
                if self._live.poison is None:
                    rows = [ticket.row for ticket in tickets]
                    # Shielded: the others' tokens must not be lost when this caller is cancelled.
                    with anyio.CancelScope(shield=True):
                        await anyio.to_thread.run_sync(self._model.advance, rows, _TICK_STEPS, self._interrupt)
                for ticket, count in zip(tickets, before, strict=True):
                    ticket.failure = self._live.poison
                    ticket.spans.append((self.version, len(ticket.row.logprobs) - count))
                    if ticket.over:
                        ticket.turn.set()
                self._waiting = [ticket for ticket in self._waiting if not ticket.over]
        finally:
            self._ticking = False

    def _hand_over(self) -> None:
        """Let one waiting caller run the next tick, if nobody does."""
        if not self._ticking and self._waiting:
            self._waiting[0].turn.set()

    async def _load(self, manifest: WeightsManifest) -> tuple[float, ...]:
        """Load and probe; no tick runs meanwhile. What does not fit is refused before anything changed."""
        try:
            with anyio.CancelScope(shield=True):
                if manifest.adapter is None:
                    await anyio.to_thread.run_sync(self._model.load, manifest.path)
                else:
                    await anyio.to_thread.run_sync(self._model.load_adapter, manifest.path, manifest.adapter)
        except WeightsRejected:
            raise
        except Exception as error:
            self._live.broke(f"loading version {manifest.version} failed halfway ({in_words(error)})")
            raise WeightsRejected(
                f"{manifest.path}: version {manifest.version} was not loaded: {in_words(error)}"
            ) from error
        try:
            with anyio.CancelScope(shield=True):
                said = probe.check(
                    manifest.version, await anyio.to_thread.run_sync(self._model.probe, self._probe_prompt)
                )
        except Exception as error:
            self._live.broke(f"version {manifest.version} did not pass its probe ({in_words(error)})")
            raise WeightsRejected(f"{manifest.path}: {in_words(error)}") from error
        self._live.loaded(manifest)
        return said

    def _result(self, ticket: _Ticket) -> GenerateResult:
        if ticket.failure is not None:
            raise GeneratorBroken(ticket.failure)
        token_ids = np.asarray(ticket.row.sampled, dtype=np.int32)
        spans = requests.merge_spans(ticket.spans)
        requests.check_spans(spans, len(token_ids))
        logprobs = np.asarray(ticket.row.logprobs, dtype=np.float32)
        requests.check_logprobs(logprobs)
        return GenerateResult(
            token_ids=token_ids,
            logprobs=logprobs,
            spans=spans,
            cut=not ticket.row.stopped,
        )
