"""One weight update of a running vLLM engine, in process or over HTTP: pause, load, label, probe, resume.

consumes: a manifest whose bytes were verified. waits for: each call, no longer than its deadline. produces: the probe
of the new weights and the length of the pause. unblocked by: the engine's answers, or the deadlines.

Nothing is sampled between the pause and a passed probe. Weights that fail on the way are those of no version: every
request is failed, and the engine is never resumed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import anyio
import msgspec

from stream_rl.causes import in_words
from stream_rl.errors import WeightsRejected
from stream_rl.generate import probe
from stream_rl.generate.live import LiveWeights
from stream_rl.types import WeightsManifest

_RESUME_ATTEMPTS = 3

logger = logging.getLogger(__name__)


class WeightCalls(Protocol):
    """What an engine must be able to do. Every call may raise anything, or never return."""

    async def pause(self) -> None:
        """Sample nothing more; keep requests in flight, drop all keys and values."""
        ...

    async def start(self) -> None:
        """Expect weights."""
        ...

    async def load(self, manifest: WeightsManifest) -> None:
        """Read the version's tensors into the model."""
        ...

    async def finish(self, label: str) -> None:
        """All tensors are there; later tokens carry the label."""
        ...

    async def label(self) -> str:
        """What the engine calls the weights it holds."""
        ...

    async def probe(self, prompt_ids: list[int]) -> Sequence[float]:
        """Log-probabilities of `prompt_ids[1:]` and of the greedy next token. Called while paused."""
        ...

    async def resume(self) -> None:
        """Go on. Harmless when not paused."""
        ...

    async def paused(self) -> bool:
        """Whether it samples nothing now."""
        ...

    async def abandon(self) -> None:
        """Fail every request and stay paused."""
        ...


class SwapDeadlines(msgspec.Struct, frozen=True, kw_only=True):
    """How long an update may take."""

    call_s: float  # each of pause, probe and resume
    total_s: float  # from the call that pauses to the end of loading


class Swapped(msgspec.Struct, frozen=True, kw_only=True):
    """What an update did."""

    probe: tuple[float, ...]  # log-probabilities, see `probe.check`
    wait_s: float  # until the engine was idle: the step under way goes on to its end
    pause_s: float  # from then until it was resumed: no token was sampled
    load_s: float  # part of it spent loading
    probe_s: float  # part of it spent on the probe


async def swap(
    calls: WeightCalls, manifest: WeightsManifest, live: LiveWeights, prompt: list[int], deadlines: SwapDeadlines
) -> Swapped:
    """Put the manifest's weights into the engine. Raises `WeightsRejected`; `live` says whether it is poisoned then."""
    began = time.monotonic()
    end = began + deadlines.total_s
    try:
        async with _within("pause", deadlines.call_s):
            await calls.pause()
        paused = time.monotonic()
        try:
            await _load(calls, manifest, end)
            loaded = time.monotonic()
            async with _within("probe", deadlines.call_s):
                said = await _probe(calls, manifest, prompt)
        except BaseException as error:
            live.broke(f"loading version {manifest.version} failed halfway ({in_words(error)})")
            raise
        live.loaded(manifest)
        probed = time.monotonic()
    except Exception as error:
        raise WeightsRejected(
            f"{manifest.path}: vLLM did not take version {manifest.version}: {in_words(error)}"
        ) from error
    finally:
        # Also when cancelled: a paused engine would hold its requests for ever.
        with anyio.CancelScope(shield=True):
            if live.poison is None:
                resumed = await _resume(calls, live, deadlines.call_s)
            else:
                await _abandon(calls, deadlines.call_s)
    return Swapped(
        probe=said,
        wait_s=paused - began,
        pause_s=resumed - paused,
        load_s=loaded - paused,
        probe_s=probed - loaded,
    )


async def _load(calls: WeightCalls, manifest: WeightsManifest, end: float) -> None:
    async with _within("start_weight_update", end - time.monotonic()):
        await calls.start()
    async with _within("update_weights", end - time.monotonic()):
        await calls.load(manifest)
    async with _within("finish_weight_update", end - time.monotonic()):
        await calls.finish(str(manifest.version))


async def _probe(calls: WeightCalls, manifest: WeightsManifest, prompt: list[int]) -> tuple[float, ...]:
    label = await calls.label()
    if label != str(manifest.version):
        raise WeightsRejected(f"the engine calls its weights {label!r} after version {manifest.version} was loaded")
    return probe.check(manifest.version, await calls.probe(prompt))


async def _resume(calls: WeightCalls, live: LiveWeights, call_s: float) -> float:
    """When it was resumed. Asks until the engine itself says that it samples again.

    A call or an answer may get lost; the next one repeats it. The engine's word comes after its first step, so it is
    no part of the pause.
    """
    problem = ""
    for attempt in range(_RESUME_ATTEMPTS):
        try:
            async with _within("resume", call_s):
                await calls.resume()
                resumed = time.monotonic()
                if not await calls.paused():
                    return resumed
            problem = "it answered, and is paused still"
        except Exception as error:
            problem = in_words(error)
        logger.warning("resume %d of %d after an update failed: %s", attempt + 1, _RESUME_ATTEMPTS, problem)
    live.broke(f"vLLM could not be resumed after an update ({problem})")
    await _abandon(calls, call_s)
    raise WeightsRejected(str(live.poison))


async def _abandon(calls: WeightCalls, call_s: float) -> None:
    """Nobody waits for tokens of these weights. An engine that does not even do that is ended with its producer."""
    try:
        async with _within("abort", call_s):
            await calls.abandon()
    except Exception as error:
        logger.error("vLLM did not give up its requests after a failed update: %s", in_words(error))


@asynccontextmanager
async def _within(call: str, seconds: float) -> AsyncIterator[None]:
    """A deadline that says which call missed it."""
    with anyio.move_on_after(seconds) as scope:
        yield
    if scope.cancelled_caught:
        raise TimeoutError(f"{call} did not answer within {max(seconds, 0.0):.3g} s")
