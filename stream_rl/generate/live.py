"""Which weights are live in a generator, and which update it may take next. A pure state machine, no clock, no file."""

from __future__ import annotations

from stream_rl.errors import WeightsRejected
from stream_rl.types import WeightsManifest


class LiveWeights:
    """The version that samples now. It only grows, and only within one run."""

    def __init__(self, run_id: str, version: int) -> None:
        self._run_id = run_id
        self._version = version
        self._fingerprint: str | None = None
        self._poison: str | None = None

    @property
    def version(self) -> int:
        """Version that is live."""
        return self._version

    @property
    def poison(self) -> str | None:
        """Why the weights in memory cannot be trusted any more; None while they can."""
        return self._poison

    def admit(self, manifest: WeightsManifest) -> bool:
        """Whether the manifest has to be loaded; False if it is live already. Raises `WeightsRejected`.

        The start policy has no recorded fingerprint, so a manifest of the starting version counts as live.
        """
        if self._poison is not None:
            raise WeightsRejected(f"version {manifest.version} refused: {self._poison}; restart the generator")
        if manifest.run_id != self._run_id:
            raise WeightsRejected(
                f"{manifest.path} belongs to run {manifest.run_id!r}; this generator serves run {self._run_id!r}"
            )
        if manifest.version < self._version:
            raise WeightsRejected(f"version {manifest.version} is older than version {self._version}, which is live")
        if manifest.version > self._version:
            return True
        if self._fingerprint is not None and manifest.fingerprint != self._fingerprint:
            raise WeightsRejected(
                f"version {manifest.version} is live with fingerprint {self._fingerprint}, "
                f"but {manifest.path} claims the same version with {manifest.fingerprint}"
            )
        return False

    def loaded(self, manifest: WeightsManifest) -> None:
        """The manifest's weights are live from the next token on."""
        self._version = manifest.version
        self._fingerprint = manifest.fingerprint

    def broke(self, reason: str) -> None:
        """Loading failed halfway, or the engine is gone: nothing more may be sampled or loaded."""
        self._poison = reason
