"""The generator's end of the `nccl` transport: the learner drives this engine's weight update by remote calls.

The engine is paused before, labelled and resumed after by whoever calls `receive`. The tensors themselves come over
NCCL into the engine's workers, which check each against the manifest (`stream_rl.generate.vllm_weights`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from stream_rl.errors import ConfigError, LinkError, WeightsRejected
from stream_rl.generate.vllm_calls import EngineCalls
from stream_rl.link import zmq_wire
from stream_rl.link.calls import MAX_CALL_BYTES, Call, Done, Join, Sent, to_receiver
from stream_rl.link.codec import encode
from stream_rl.link.limits import Limits
from stream_rl.types import WeightsManifest

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM


class NcclCalls(EngineCalls):
    """The weight calls of an `AsyncLLM` whose weights the learner sends: all from start to finish are the learner's."""

    def __init__(self, llm: AsyncLLM, session: bytes) -> None:
        super().__init__(llm, base="")  # no file is read
        self._session = session

    async def start(self) -> None:
        """The learner's call, in `load`."""

    async def load(self, manifest: WeightsManifest) -> None:
        """Have the learner send the version, start to finish."""
        num_workers = self._llm.vllm_config.parallel_config.world_size
        await receive(self._llm, manifest, session=self._session, num_workers=num_workers)

    async def finish(self, label: str) -> None:
        """The learner's call, in `load`."""


async def receive(engine: Any, manifest: WeightsManifest, *, session: bytes, num_workers: int) -> None:
    """Have the manifest's version sent to `engine`, vLLM's `AsyncLLM`. Raises `WeightsRejected`.

    `session` names this generator process to the learner, the same for all its updates (`session_route()`).
    """
    try:
        wire = zmq_wire.connect(manifest.address, session, Limits(max_message_bytes=MAX_CALL_BYTES))
    except ConfigError as error:
        raise WeightsRejected(f"version {manifest.version}: {error}") from error
    came, calls = anyio.create_memory_object_stream[list[bytes]](math.inf)  # one call waits at a time
    try:
        with came, calls:
            failure: LinkError | WeightsRejected | None = None
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wire.run, lambda _, parts: came.send_nowait(parts), lambda now: math.inf)
                wire.put(b"", encode(Join(run_id=manifest.run_id, version=manifest.version, num_workers=num_workers)))
                try:
                    await _obey(engine, manifest, wire, calls)
                except (LinkError, WeightsRejected) as error:  # leaves as it is, not wrapped in a group
                    failure = error
                tasks.cancel_scope.cancel()
            if failure is not None:
                raise WeightsRejected(
                    f"version {manifest.version} was not sent by the learner at {manifest.address}: {failure}"
                ) from failure
    finally:
        wire.close()


async def _obey(
    engine: Any, manifest: WeightsManifest, wire: zmq_wire.ZmqWire, calls: MemoryObjectReceiveStream[list[bytes]]
) -> None:
    """Consumes: calls. Waits for: them. Produces: what they ask of the engine. Unblocked by: the learner's `Sent`."""
    failure: Exception | None = None
    finished = False
    async for parts in calls:
        match to_receiver.decode(parts):
            case Sent(error=error):
                if failure is not None:
                    raise WeightsRejected(str(failure)) from failure
                if error or not finished:
                    raise WeightsRejected(error or "the learner ended the transfer before the engine had everything")
                return
            case Call() as call:
                try:
                    await _call(engine, manifest, call)
                    finished = call.method == "finish_weight_update"
                except Exception as problem:  # the learner waits for an answer; raised when it has let go
                    failure = problem
                wire.put(b"", encode(Done(error=str(failure) if failure else "")))


async def _call(engine: Any, manifest: WeightsManifest, call: Call) -> None:
    from vllm.distributed.weight_transfer.base import WeightTransferInitRequest, WeightTransferUpdateRequest

    match call.method:
        case "init_weight_transfer_engine":
            await engine.init_weight_transfer_engine(WeightTransferInitRequest(call.info))
        case "start_weight_update":
            await engine.start_weight_update()
        case "update_weights":
            checksums = {record.name: record.checksum for record in manifest.tensors}
            await engine.update_weights(WeightTransferUpdateRequest({**call.info, "checksums": checksums}))
        case "finish_weight_update":
            await engine.finish_weight_update(str(manifest.version))
