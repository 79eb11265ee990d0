"""What two gloo ranks publish under ZeRO 1, 2 and 3, and what two generators hold: one reads the file, one pulls it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from safetensors.torch import load_file

from learner.weights.stream import open_chunk_server
from stream_rl.generate.options import GeneratorOptions
from stream_rl.generate.transformers_engine import TransformersGenerator
from stream_rl.generate.weights_stream import StreamedGenerator
from stream_rl.types import WeightsManifest
from tests.process.deepspeed_worker import NUM_UPDATES
from tests.process.test_deepspeed import run_ranks

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]
RUN = "run"


class Found:
    """What the ranks published, by ZeRO stage, and where."""

    def __init__(self, folder: Path, result: dict[str, Any]) -> None:
        self.folder = folder
        self.buckets: dict[str, bool] = result["buckets"]
        self.manifests = {
            stage: msgspec.convert(manifests, list[WeightsManifest]) for stage, manifests in result["manifests"].items()
        }


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    folder = tmp_path_factory.mktemp("weights")
    return Found(folder, run_ranks(folder, 2, "weights_worker"))


async def generator(folder: Path) -> TransformersGenerator:
    options = GeneratorOptions(model=str(folder / "model"), max_model_len=64, concurrency=2, run_id=RUN)
    return await TransformersGenerator.start(options)


@pytest.mark.parametrize("stage", ["1", "2", "3"])
async def test_two_generators_hold_what_two_ranks_published(found: Found, stage: str) -> None:
    manifest = found.manifests[stage][-1]
    assert manifest.version == NUM_UPDATES
    reads = await generator(found.folder)
    pulls = StreamedGenerator(await generator(found.folder), found.folder / f"pulled{stage}")
    directory = Path(manifest.path).parent.parent
    async with open_chunk_server(directory, RUN) as server:
        streamed = msgspec.structs.replace(manifest, transport="stream", address=server.address)
        reports = [await reads.update(manifest), await pulls.update(streamed)]
    assert [report.fingerprint for report in reports] == [manifest.fingerprint] * 2
    assert reports[0].version == reports[1].version == NUM_UPDATES
    await reads.aclose()
    await pulls.aclose()


def test_every_stage_publishes_the_same_start(found: Found) -> None:
    assert len({manifests[0].fingerprint for manifests in found.manifests.values()}) == 1


def test_every_update_is_another_version(found: Found) -> None:
    for manifests in found.manifests.values():
        assert len({manifest.fingerprint for manifest in manifests}) == NUM_UPDATES + 1


def test_stages_train_to_the_same_weights(found: Found) -> None:
    """To rounding: ZeRO 3 adds gradients up in another order."""
    one, two, three = (load_file(found.manifests[stage][-1].path) for stage in ("1", "2", "3"))
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, atol=2e-6, rtol=0)
        torch.testing.assert_close(three[name], tensor, atol=2e-6, rtol=0)


def test_what_is_gathered_does_not_depend_on_the_bucket(found: Found) -> None:
    assert found.buckets == {"1": True, "10000": True}
