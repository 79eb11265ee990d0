"""The start policy's files, as the base that LoRA versions are added to."""

from __future__ import annotations

from pathlib import Path

from stream_rl import adapters, fingerprint, model_folder
from stream_rl.errors import WeightsRejected
from stream_rl.types import WeightsManifest


class BaseWeights:
    """What a generator was started from. Blocking; one call at a time."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._seen: tuple[
            tuple[str, int, int, int], ...
        ] = ()  # name, number, size, time of the files the fingerprint is of
        self._fingerprint = ""

    def verify(self, manifest: WeightsManifest) -> str:
        """As `fingerprint.verify`; and factors must be those of this base, and fit it. Raises `WeightsRejected`.

        The base is read whole the first time, and again only if its files have changed.
        """
        found = fingerprint.verify(manifest)
        if manifest.adapter is None:
            return found
        told = f"{manifest.path}: version {manifest.version}"
        own = self._own_fingerprint()
        if own != manifest.adapter.base:
            raise WeightsRejected(
                f"{told} is an adapter of the base {manifest.adapter.base}; {self._folder} holds {own}: it is another "
                "model, or was changed after the learner started. Give learner and generators one folder"
            )
        shapes = {record.name: record.shape for record in manifest.tensors}
        try:
            adapters.fit(shapes, model_folder.shapes_of(self._folder), manifest.adapter.rank)
        except WeightsRejected as error:
            raise WeightsRejected(f"{told} does not fit {self._folder}: {error}") from error
        return found

    def _own_fingerprint(self) -> str:
        stats = [(file.name, file.stat()) for file in model_folder.weight_files(self._folder)]
        seen = tuple((name, stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in stats)
        if seen != self._seen:
            self._fingerprint = model_folder.fingerprint_of(self._folder)
            self._seen = seen
        return self._fingerprint
