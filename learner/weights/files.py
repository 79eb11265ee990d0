"""Versions as files, best in a memory-backed directory. Generators read them there, or are sent what lies there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from learner.weights import safetensors
from learner.weights.port import TensorSpec
from learner.weights.wire import on_wire, wire_specs
from stream_rl.fingerprint import of_tensors, save_manifest
from stream_rl.types import AdapterRecord, Transport, WeightsManifest

_VERSION_FILE = re.compile(r"v(\d+)\.(safetensors|json)")


def version_folder(directory: Path, run_id: str) -> Path:
    """Where the versions of a run lie. Raises `ValueError` for a run id that is no plain folder name."""
    if not re.fullmatch(r"[\w.-]+", run_id) or run_id.startswith("."):
        raise ValueError(f"run id {run_id!r} cannot name a folder: letters, digits, '_', '-' and '.' only")
    return directory / run_id


def version_file(directory: Path, run_id: str, version: int) -> Path:
    """The file of one version. Raises `ValueError` as `version_folder` does."""
    return version_folder(directory, run_id) / f"v{version:05d}.safetensors"


class FilesPublisher:
    """Writes `DIRECTORY/RUN_ID/v00012.safetensors`, then its manifest `v00012.json` beside it.

    Each run has a folder of its own, so that what another run left behind is neither believed nor deleted. The last
    `keep` versions stay: a generator may still be reading the one before. Both files appear by renaming, complete.

    `dtype` is what floating tensors are rounded to (None: as they are). `transport` and `address` go into the
    manifests, for generators that do not read the files themselves. With `adapter` the tensors are its factors.
    """

    def __init__(
        self,
        directory: Path,
        run_id: str,
        keep: int = 2,
        *,
        dtype: torch.dtype | None = None,
        transport: Transport = "files",
        address: str = "",
        adapter: AdapterRecord | None = None,
    ) -> None:
        if keep < 1:
            raise ValueError(f"at least the published version must be kept, got keep = {keep}")
        self._directory = directory
        self._folder = version_folder(directory, run_id)
        self._run_id = run_id
        self._keep = keep
        self._dtype = dtype
        self._transport: Transport = transport
        self._address = address
        self._adapter = adapter
        self._folder.mkdir(parents=True, exist_ok=True)
        for unfinished in self._folder.glob("*.partial"):
            unfinished.unlink()

    def publish(self, version: int, specs: Sequence[TensorSpec], tensors: Iterable[Tensor]) -> WeightsManifest:
        """Write one version and forget older ones, and any that a crash left from updates that are trained again."""
        data = version_file(self._directory, self._run_id, version)
        partial = data.with_suffix(".safetensors.partial")
        records = safetensors.write(partial, wire_specs(specs, self._dtype), on_wire(tensors, self._dtype))
        num_bytes = partial.stat().st_size
        partial.rename(data)
        manifest = WeightsManifest(
            run_id=self._run_id,
            version=version,
            path=str(data),
            fingerprint=of_tensors(records, self._adapter),
            num_bytes=num_bytes,
            tensors=records,
            transport=self._transport,
            address=self._address,
            adapter=self._adapter,
        )
        save_manifest(manifest, data.with_suffix(".json"))
        for file in self._folder.iterdir():
            match = _VERSION_FILE.fullmatch(file.name)
            if match and not version - self._keep < int(match[1]) <= version:
                file.unlink(missing_ok=True)
        return manifest
