"""Versions as files in a directory that learner and generators share, best a memory-backed one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from torch import Tensor

from learner.weights import safetensors
from learner.weights.port import TensorSpec
from stream_rl.fingerprint import manifest_of, save_manifest
from stream_rl.types import WeightsManifest

_VERSION_FILE = re.compile(r"v(\d+)\.(safetensors|json)")


class FilesPublisher:
    """Writes `DIRECTORY/RUN_ID/v00012.safetensors`, then its manifest `v00012.json` beside it.

    Each run has a folder of its own, so that what another run left behind is neither believed nor deleted. The last
    `keep` versions stay: a generator may still be reading the one before. Both files appear by renaming, complete.
    """

    def __init__(self, directory: Path, run_id: str, keep: int = 2) -> None:
        if not re.fullmatch(r"[\w.-]+", run_id) or run_id.startswith("."):
            raise ValueError(f"run id {run_id!r} cannot name a folder: letters, digits, '_', '-' and '.' only")
        if keep < 1:
            raise ValueError(f"at least the published version must be kept, got keep = {keep}")
        self._folder = directory / run_id
        self._run_id = run_id
        self._keep = keep
        self._folder.mkdir(parents=True, exist_ok=True)
        for unfinished in self._folder.glob("*.partial"):
            unfinished.unlink()

    def publish(self, version: int, specs: Sequence[TensorSpec], tensors: Iterable[Tensor]) -> WeightsManifest:
        """Write one version and forget older ones, and any that a crash left from updates that are trained again."""
        data = self._folder / f"v{version:05d}.safetensors"
        partial = data.with_suffix(".safetensors.partial")
        safetensors.write(partial, specs, tensors)
        partial.rename(data)
        manifest = manifest_of(data, run_id=self._run_id, version=version)
        save_manifest(manifest, data.with_suffix(".json"))
        for file in self._folder.iterdir():
            match = _VERSION_FILE.fullmatch(file.name)
            if match and not version - self._keep < int(match[1]) <= version:
                file.unlink(missing_ok=True)
        return manifest
