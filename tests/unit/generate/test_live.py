from __future__ import annotations

import pytest

from stream_rl.errors import WeightsRejected
from stream_rl.generate.live import LiveWeights
from stream_rl.types import WeightsManifest


def a_manifest(version: int, *, run_id: str = "r", fingerprint: str = "f") -> WeightsManifest:
    return WeightsManifest(run_id=run_id, version=version, path="w", fingerprint=fingerprint, num_bytes=1)


def test_takes_newer_versions_of_its_run_only() -> None:
    live = LiveWeights("r", 4)
    assert live.admit(a_manifest(7))  # versions may be skipped
    live.loaded(a_manifest(7))
    assert live.version == 7
    assert not live.admit(a_manifest(7))  # the same once more
    with pytest.raises(WeightsRejected, match="older than version 7"):
        live.admit(a_manifest(6))
    with pytest.raises(WeightsRejected, match="run 's'"):
        live.admit(a_manifest(8, run_id="s"))
    with pytest.raises(WeightsRejected, match="same version with g"):
        live.admit(a_manifest(7, fingerprint="g"))
    assert live.version == 7


def test_the_start_policy_counts_as_live() -> None:
    assert not LiveWeights("r", 4).admit(a_manifest(4))


def test_a_broken_one_takes_nothing() -> None:
    live = LiveWeights("r", 0)
    live.broke("loading failed halfway")
    with pytest.raises(WeightsRejected, match="version 1 refused: loading failed halfway; restart"):
        live.admit(a_manifest(1))
