"""The weight calls of an `AsyncLLM` of this process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import msgspec

from stream_rl.errors import WeightsRejected
from stream_rl.types import WeightsManifest

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM


T = TypeVar("T")


def file_update(manifest: WeightsManifest, base: str) -> dict[str, Any]:
    """What a worker needs to know to read the version's file (`vllm_weights.FileUpdateInfo`).

    `base` is the start policy's folder, to which an adapter is added.
    """
    info = {"path": manifest.path, "checksums": {record.name: record.checksum for record in manifest.tensors}}
    if manifest.adapter is None:
        return info
    return {**info, "base": base, "adapter": msgspec.to_builtins(manifest.adapter)}


class EngineCalls:
    """See `weight_swap.WeightCalls`. A call that waits when the engine's process dies raises `EngineDeadError` then."""

    def __init__(self, llm: AsyncLLM, base: str) -> None:
        self._llm = llm
        self._base = base  # folder of the start policy

    async def pause(self) -> None:
        """Keep the requests, drop all keys and values.

        As `AsyncLLM.pause_generation` does it, without the 20 ms it sleeps for the order of events: the label of a
        token comes from the step that sampled it.
        """
        await self._answer(self._llm.engine_core.pause_scheduler_async(mode="keep", clear_cache=True))

    async def start(self) -> None:
        """Take the repacked weights aside."""
        await self._answer(self._llm.start_weight_update())

    async def load(self, manifest: WeightsManifest) -> None:
        """Have every worker read the file."""
        from vllm.distributed.weight_transfer.base import WeightTransferUpdateRequest

        await self._answer(self._llm.update_weights(WeightTransferUpdateRequest(file_update(manifest, self._base))))

    async def finish(self, label: str) -> None:
        """Repack, and label later tokens."""
        await self._answer(self._llm.finish_weight_update(label))

    async def label(self) -> str:
        """vLLM's own label of its weights."""
        return str(await self._answer(self._llm.get_weight_version()))

    async def probe(self, prompt_ids: list[int]) -> Sequence[float]:
        """One forward in every worker; those of one tensor-parallel group must say the same."""
        from stream_rl.generate.vllm_probe import METHOD

        answers: list[list[float]] = await self._answer(self._llm.collective_rpc(METHOD, args=(prompt_ids,)))
        if any(answer != answers[0] for answer in answers):
            raise WeightsRejected(f"the engine's workers disagree about one prompt: {answers}")
        return answers[0]

    async def resume(self) -> None:
        """Schedule again."""
        await self._answer(self._llm.resume_generation())

    async def paused(self) -> bool:
        """The scheduler's own state."""
        return bool(await self._answer(self._llm.is_paused()))

    async def abandon(self) -> None:
        """Abort every request; new ones are held back as before."""
        await self._answer(self._llm.pause_generation(mode="abort", clear_cache=True))

    async def _answer(self, call: Awaitable[T]) -> T:
        """The call's answer. vLLM leaves a call waiting for ever when the process that would answer it has died."""
        from vllm.v1.engine.exceptions import EngineDeadError

        outcome: list[T] = []
        failure: Exception | None = None

        async def watch(handler: asyncio.Task[None]) -> None:
            await asyncio.wait({handler})  # it ends with the engine
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            if self._llm.output_handler is not None:
                tasks.start_soon(watch, self._llm.output_handler)
            try:
                outcome.append(await call)
            except Exception as error:  # leaves as it is, not wrapped in a group
                failure = error
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure
        if not outcome:
            raise EngineDeadError
        return outcome[0]
