"""Adapters trained by two gloo ranks under ZeRO 1 and 3, and generators that add what they publish to the base."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from learner.weights.stream import open_chunk_server
from stream_rl.generate.options import GeneratorOptions
from stream_rl.generate.transformers_engine import TransformersGenerator
from stream_rl.generate.weights_stream import StreamedGenerator
from stream_rl.ports import GenerateRequest
from stream_rl.types import AdapterRecord, WeightsManifest
from tests import micro_models
from tests.process.lora_worker import ALPHA, RANK
from tests.process.test_deepspeed import run_ranks

pytest.importorskip("peft", reason="peft is not installed: pip install 'stream-rl[lora]'")
pytestmark = [pytest.mark.process, pytest.mark.timeout(300), pytest.mark.filterwarnings("default")]
STAGES = ("1", "3")
PROMPT = [5, 9, 2, 7, 33]


class Found:
    """What the ranks published, by ZeRO stage, and where."""

    def __init__(self, folder: Path, result: dict[str, Any]) -> None:
        self.folder = folder
        self.result = result

    def manifest(self, stage: str, version: int) -> WeightsManifest:
        return msgspec.convert(self.result[stage]["manifests"][version], WeightsManifest)

    def checkpoint(self, stage: str) -> Path:
        return self.folder / f"zero{stage}" / "checkpoints" / "000002"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    folder = tmp_path_factory.mktemp("lora")
    return Found(folder, run_ranks(folder, 2, "lora_worker"))


@pytest.mark.parametrize("stage", STAGES)
def test_adapters_alone_are_trained_published_and_kept(found: Found, stage: str) -> None:
    result = found.result[stage]
    assert result["unchanged"]  # the base, to the bit
    manifests = [found.manifest(stage, version) for version in range(3)]
    assert len({manifest.fingerprint for manifest in manifests}) == 3
    assert {m.adapter for m in manifests} == {AdapterRecord(rank=RANK, alpha=ALPHA, base=manifests[0].adapter.base)}  # type: ignore[union-attr]
    assert {record.name.rpartition(".lora_")[2] for record in manifests[2].tensors} == {"A.weight", "B.weight"}
    assert len(manifests[2].tensors) == 28
    assert "model.safetensors" not in result["checkpoint_files"]
    assert result["again"] == manifests[2].fingerprint  # trained once more from the checkpoint


def test_stages_start_alike_and_train_to_the_same_factors(found: Found) -> None:
    assert found.manifest("1", 0).fingerprint == found.manifest("3", 0).fingerprint
    one, three = (load_file(found.manifest(stage, 2).path) for stage in STAGES)
    for name, tensor in one.items():
        torch.testing.assert_close(three[name], tensor, atol=2e-6, rtol=0)


@pytest.mark.parametrize("stage", STAGES)
async def test_generators_sample_from_base_and_factors(found: Found, stage: str) -> None:
    """What peft itself makes of the checkpoint is the oracle."""
    options = GeneratorOptions(model=str(found.folder / "model"), max_model_len=64, concurrency=2, run_id="run")
    manifest = found.manifest(stage, 2)
    reads = await TransformersGenerator.start(options)
    pulls = StreamedGenerator(await TransformersGenerator.start(options), found.folder / f"pulled{stage}")
    async with open_chunk_server(Path(manifest.path).parent.parent, "run") as server:
        streamed = msgspec.structs.replace(manifest, transport="stream", address=server.address)
        reports = [await reads.update(manifest), await pulls.update(streamed)]
    assert [report.fingerprint for report in reports] == [manifest.fingerprint] * 2
    peft: Any = importlib.import_module("peft")
    base = AutoModelForCausalLM.from_pretrained(found.folder / "model")
    model = peft.PeftModel.from_pretrained(base, found.checkpoint(stage)).merge_and_unload().eval()
    for generator in (reads, pulls):
        request = GenerateRequest(
            prompt_ids=np.array(PROMPT, dtype=np.int32), max_tokens=12, temperature=1.0, stop_token_ids=()
        )
        result = await generator.generate(request)
        said = micro_models.logprobs(model, PROMPT + result.token_ids.tolist(), len(PROMPT), 1.0)
        np.testing.assert_allclose(result.logprobs, said, atol=1e-5)
        await generator.aclose()
