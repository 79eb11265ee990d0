"""The generator's end of the `stream` transport: a version's file is pulled from the learner before it is loaded.

Requests go on being served while the pieces come; the pause begins when the whole file is here.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import anyio
import msgspec
from anyio import to_thread

from stream_rl.generate.pull import SILENCE_S, Pull
from stream_rl.ports import GenerateRequest, GenerateResult, Generator
from stream_rl.types import UpdateReport, WeightsManifest


class StreamedGenerator:
    """A generator whose versions come over the network. `folder` should be memory-backed; it holds one version."""

    def __init__(self, inner: Generator, folder: Path) -> None:
        self._inner = inner
        self._folder = folder
        self._updating = anyio.Lock()

    @property
    def engine(self) -> str:
        """That of the generator behind."""
        return self._inner.engine

    @property
    def version(self) -> int:
        """Version of the weights that are live."""
        return self._inner.version

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        """Sample one turn."""
        return await self._inner.generate(request)

    async def update(self, manifest: WeightsManifest) -> UpdateReport:
        """Pull the file if it is newer than what is live, let the generator verify and load it, and drop it."""
        async with self._updating:
            if manifest.transport != "stream" or manifest.version <= self.version:
                return await self._inner.update(manifest)
            local = await fetch(manifest, self._folder)
            try:
                return await self._inner.update(local)
            finally:
                await _remove(Path(local.path))

    async def aclose(self) -> None:
        """End the generator behind."""
        await self._inner.aclose()


async def fetch(manifest: WeightsManifest, folder: Path, *, silence_s: float = SILENCE_S) -> WeightsManifest:
    """Pull the manifest's file into `folder`. Returns the manifest of the copy, a file like any other.

    Survives broken connections and damaged pieces. Raises `WeightsRejected` when the learner has no such version, or
    is silent or gone. The copy as a whole is verified by who loads it.
    """
    target = folder / f"v{manifest.version:05d}.safetensors"
    pull = Pull(manifest, target, silence_s=silence_s)
    try:
        await to_thread.run_sync(pull.run, abandon_on_cancel=True)
    finally:
        pull.stop()  # a thread that was abandoned wakes, removes its file and ends
    return msgspec.structs.replace(manifest, path=str(target), transport="files", address="")


async def _remove(path: Path) -> None:
    """In a thread, since gigabytes take a while to free; and also when cancelled."""
    with anyio.CancelScope(shield=True):
        await to_thread.run_sync(partial(path.unlink, missing_ok=True))
