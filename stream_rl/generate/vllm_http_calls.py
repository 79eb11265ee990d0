"""The weight calls of a vLLM server, through the routes its development mode opens (`VLLM_SERVER_DEV_MODE=1`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from stream_rl.errors import WeightsRejected
from stream_rl.generate.options import ModelShape
from stream_rl.generate.vllm_calls import file_update
from stream_rl.generate.vllm_http_session import ServerSession
from stream_rl.generate.vllm_probe import METHOD, SHAPE_METHOD
from stream_rl.types import WeightsManifest


class Label(msgspec.Struct, frozen=True):
    """Answer of `/weight_info`."""

    weight_version: str


class Paused(msgspec.Struct, frozen=True):
    """Answer of `/is_paused`."""

    is_paused: bool


class Said(msgspec.Struct, frozen=True):
    """Answer of `/collective_rpc`: one result a worker."""

    results: list[list[float]]


class Shapes(msgspec.Struct, frozen=True):
    """Answer of `/collective_rpc`: one result a worker."""

    results: list[ModelShape]


class ServerCalls:
    """See `weight_swap.WeightCalls`. Labels on the server are `RUN:VERSION`, so that no run believes another's."""

    def __init__(self, session: ServerSession, run_id: str, base: str) -> None:
        self._session = session
        self._run_id = run_id
        self._base = base  # folder of the start policy

    async def pause(self) -> None:
        """Keep the requests, drop all keys and values."""
        await self._session.post("/pause?mode=keep&clear_cache=true", None, dict[str, Any])

    async def start(self) -> None:
        """Take the repacked weights aside."""
        await self._session.post("/start_weight_update", None, dict[str, Any])

    async def load(self, manifest: WeightsManifest) -> None:
        """Have every worker read the file: the server must see it under the manifest's path."""
        await self._session.post("/update_weights", {"update_info": file_update(manifest, self._base)}, dict[str, Any])

    async def finish(self, label: str) -> None:
        """Repack, and label later tokens."""
        body = {"weight_version": label_of(self._run_id, label)}
        await self._session.post("/finish_weight_update", body, dict[str, Any])

    async def label(self) -> str:
        """The version the server holds, if its weights are this run's; else its whole label."""
        held = (await self._session.get("/weight_info", Label)).weight_version
        return held.removeprefix(label_of(self._run_id, ""))

    async def probe(self, prompt_ids: list[int]) -> Sequence[float]:
        """One forward in every worker; those of one tensor-parallel group must say the same."""
        said = await self._session.post("/collective_rpc", {"method": METHOD, "args": [prompt_ids]}, Said)
        if not said.results or any(result != said.results[0] for result in said.results):
            raise WeightsRejected(f"{self._session.url}: the workers disagree about one prompt: {said.results}")
        return said.results[0]

    async def shape(self) -> ModelShape:
        """Sizes of the model the server was started with."""
        return (await self._session.post("/collective_rpc", {"method": SHAPE_METHOD}, Shapes)).results[0]

    async def resume(self) -> None:
        """Schedule again."""
        await self._session.post("/resume", None, dict[str, Any])

    async def paused(self) -> bool:
        """The scheduler's own state."""
        return (await self._session.get("/is_paused", Paused)).is_paused

    async def abandon(self) -> None:
        """Abort every request; new ones are held back as before."""
        await self._session.post("/pause?mode=abort&clear_cache=true", None, dict[str, Any])


def label_of(run_id: str, version: str) -> str:
    """What a server is told to call a version of a run."""
    return f"{run_id}:{version}"
