"""Factors added to their base."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from stream_rl import adapters, fingerprint, model_folder
from stream_rl.errors import WeightsRejected
from stream_rl.generate.base_weights import BaseWeights
from stream_rl.generate.merging import merge, merged, read_factors
from stream_rl.types import AdapterRecord, WeightsManifest

# W0 + 2 / 1 * B A: B A = [[1 * 3, 1 * 4], [2 * 3, 2 * 4]]
W0 = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
A, B = torch.tensor([[3.0, 4.0]]), torch.tensor([[1.0], [2.0]])
SUM = torch.tensor([[7.0, 10.0], [15.0, 20.0]])
FACTORS = {"base_model.model.l.lora_A.weight": A, "base_model.model.l.lora_B.weight": B}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    save_file({"l.weight": W0, "norm.weight": torch.ones(2)}, folder / "model.safetensors")
    return folder


def publish(folder: Path, base: Path, factors: dict[str, torch.Tensor] = FACTORS, rank: int = 1) -> WeightsManifest:
    path = folder / "v1.safetensors"
    save_file(factors, path)
    adapter = AdapterRecord(rank=rank, alpha=2.0 * rank, base=model_folder.fingerprint_of(base))
    return fingerprint.manifest_of(path, run_id="r", version=1, adapter=adapter)


def test_merge_by_hand() -> None:
    before = W0.clone()
    assert torch.equal(merge(W0, A, B, scale=2.0, dtype=torch.float32), SUM)
    assert torch.equal(W0, before)


def test_what_is_added_is_rounded_once() -> None:
    """bfloat16 has 8 significant bits: 256 + 1 is rounded to 256, and so is each half of 256 + 0.75 + 0.75."""
    a, b = torch.full((2, 1), 1.0), torch.full((1, 2), 0.75)
    found = merge(torch.tensor([[256.0]]), a, b, scale=1.0, dtype=torch.bfloat16)
    assert found.dtype == torch.bfloat16
    assert found.item() == 258.0  # 257.5 lies between 256 and 258


def test_the_base_is_rounded_as_the_learner_holds_it() -> None:
    """257 is 256 in bfloat16, and 256 + 2.5 is 258 there; 257 + 2.5 would be 260."""
    one = torch.tensor([[1.0]])
    assert merge(torch.tensor([[257.0]]), one, 2.5 * one, scale=1.0, dtype=torch.bfloat16).item() == 258.0
    assert merge(torch.tensor([[257.0]]), one, 2.5 * one, scale=1.0, dtype=torch.float32).item() == 259.5


@pytest.mark.parametrize("whole", [True, False])
def test_a_version_is_the_whole_model_or_what_changed(tmp_path: Path, base: Path, whole: bool) -> None:
    manifest = publish(tmp_path, base)
    assert manifest.adapter is not None
    found = dict(merged(base, read_factors(manifest.path), manifest.adapter, dtype=torch.float32, whole=whole))
    assert torch.equal(found.pop("l.weight"), SUM)
    assert {name: t.tolist() for name, t in found.items()} == ({"norm.weight": [1.0, 1.0]} if whole else {})


def test_a_base_in_many_files_is_the_same_base(tmp_path: Path, base: Path) -> None:
    many = tmp_path / "many"
    many.mkdir()
    save_file({"l.weight": W0}, many / "a.safetensors")
    save_file({"norm.weight": torch.ones(2)}, many / "b.safetensors")
    index = '{"metadata": {}, "weight_map": {"l.weight": "a.safetensors", "norm.weight": "b.safetensors"}}'
    (many / "model.safetensors.index.json").write_text(index)
    assert model_folder.fingerprint_of(many) == model_folder.fingerprint_of(base)
    assert BaseWeights(str(many)).verify(publish(tmp_path, base)) == publish(tmp_path, base).fingerprint


def test_another_base_is_refused(tmp_path: Path, base: Path) -> None:
    manifest = publish(tmp_path, base)
    own = BaseWeights(str(base))
    assert own.verify(manifest) == manifest.fingerprint
    save_file({"l.weight": W0 + 1, "norm.weight": torch.ones(2)}, base / "model.safetensors")
    os.utime(base / "model.safetensors", ns=(0, 0))  # the clock of files is coarser than this test
    with pytest.raises(
        WeightsRejected, match=r"version 1 is an adapter of the base \w+; .*model holds \w+: it is another"
    ):
        own.verify(manifest)


def test_a_folder_without_files_is_refused(tmp_path: Path, base: Path) -> None:
    with pytest.raises(WeightsRejected, match=r"neither model\.safetensors nor"):
        BaseWeights(str(tmp_path / "nowhere")).verify(publish(tmp_path, base))


def test_a_flipped_bit_is_refused_by_name(tmp_path: Path, base: Path) -> None:
    manifest = publish(tmp_path, base)
    data = bytearray(Path(manifest.path).read_bytes())
    data[-1] ^= 1
    Path(manifest.path).write_bytes(data)
    with pytest.raises(WeightsRejected, match=r"damaged .* in `base_model\.model\.l\.lora_B\.weight`"):
        BaseWeights(str(base)).verify(manifest)


def test_rank_alpha_and_base_are_part_of_the_fingerprint(tmp_path: Path, base: Path) -> None:
    manifest = publish(tmp_path, base)
    assert manifest.adapter is not None
    of = manifest.adapter
    others = [
        AdapterRecord(rank=2, alpha=of.alpha, base=of.base),
        AdapterRecord(rank=of.rank, alpha=1.0, base=of.base),
        AdapterRecord(rank=of.rank, alpha=of.alpha, base="x"),
        None,
    ]
    digests = {fingerprint.of_tensors(manifest.tensors, other) for other in [of, *others]}
    assert len(digests) == 5
    assert manifest.fingerprint in digests


MISFITS = {
    "a factor of nothing": ({"base_model.model.k.lora_A.weight": A}, 1, r"no matrix for \['base_model\.model\.k\.lora"),
    "half a pair": ({"base_model.model.l.lora_A.weight": A}, 1, r"lora_B.weight` should be \[2, 1\].* it is missing"),
    "another rank": (FACTORS, 2, r"lora_A.weight` should be \[2, 2\], a rank 2 factor .* it is \[1, 2\]"),
    "factors of a vector": (
        {"base_model.model.norm.lora_A.weight": A, "base_model.model.norm.lora_B.weight": B},
        1,
        r"should be \[1, 0\]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISFITS)
def test_what_does_not_fit_is_refused(tmp_path: Path, base: Path, name: str) -> None:
    factors, rank, told = MISFITS[name]
    with pytest.raises(WeightsRejected, match=told):
        BaseWeights(str(base)).verify(publish(tmp_path, base, factors, rank))


def test_names_are_those_of_peft() -> None:
    pair = adapters.factors_of("model.layers.3.self_attn.q_proj.weight")
    assert pair.a == "base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight"
    assert pair.b == "base_model.model.model.layers.3.self_attn.q_proj.lora_B.weight"
