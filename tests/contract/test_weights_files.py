"""The engine's own look at a version's file: the bytes that are loaded are those that were published."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from stream_rl import fingerprint, model_folder
from stream_rl.generate.vllm_calls import file_update
from stream_rl.types import AdapterRecord

pytestmark = [
    pytest.mark.timeout(180),  # importing vLLM is 6 s of a free core
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::ResourceWarning"),
]


class Taker:
    """In place of vLLM's model: keeps what it is given."""

    def __init__(self) -> None:
        self.took: dict[str, torch.Tensor] = {}

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        given = dict(weights)
        self.took |= given
        return set(given)


def test_a_tensor_that_changed_after_it_was_verified_is_named_and_kept_from_the_model(tmp_path: Path) -> None:
    pytest.importorskip("vllm", reason="vLLM is not installed")
    vllm_weights: Any = importlib.import_module("stream_rl.generate.vllm_weights")
    path = tmp_path / "v1.safetensors"
    tensors = {"a": torch.ones(3), "b": torch.arange(4.0), "c": torch.zeros(2, dtype=torch.bfloat16)}
    save_file(tensors, path)
    manifest = fingerprint.manifest_of(path, run_id="r", version=1)
    engine = object.__new__(vllm_weights.FilesWeightTransferEngine)
    engine.device = torch.device("cpu")

    engine.model, engine._missing = Taker(), set(tensors)
    engine.receive_weights(engine.parse_update_info(file_update(manifest, "")))
    assert set(engine.model.took) == {"a", "b", "c"}
    assert engine._missing == set()

    tensors["b"][2] = 7.0
    save_file(tensors, path)
    engine.model, engine._missing = Taker(), set(tensors)
    with pytest.raises(ValueError, match=r"other bytes than were published: \['b'\]"):
        engine.receive_weights(engine.parse_update_info(file_update(manifest, "")))
    assert set(engine.model.took) == {"a", "c"}


def test_a_factor_that_changed_after_it_was_verified_keeps_the_whole_version_from_the_model(tmp_path: Path) -> None:
    pytest.importorskip("vllm", reason="vLLM is not installed")
    vllm_weights: Any = importlib.import_module("stream_rl.generate.vllm_weights")
    path, base = tmp_path / "v1.safetensors", tmp_path / "model"
    base.mkdir()
    save_file({"l.weight": torch.eye(2), "norm.weight": torch.ones(2)}, base / "model.safetensors")
    factors = {
        "base_model.model.l.lora_A.weight": torch.tensor([[1.0, 2.0]]),
        "base_model.model.l.lora_B.weight": torch.tensor([[3.0], [4.0]]),
    }
    save_file(factors, path)
    adapter = AdapterRecord(rank=1, alpha=0.5, base=model_folder.fingerprint_of(base))
    manifest = fingerprint.manifest_of(path, run_id="r", version=1, adapter=adapter)
    engine = object.__new__(vllm_weights.FilesWeightTransferEngine)
    engine.device, engine.model_config = torch.device("cpu"), SimpleNamespace(dtype=torch.float32)

    engine.model, engine._missing = Taker(), {"l.weight", "norm.weight"}
    engine.receive_weights(engine.parse_update_info(file_update(manifest, str(base))))
    # 1/2 * [3, 4] x [1, 2] = [[1.5, 3], [2, 4]], and the identity
    assert engine.model.took["l.weight"].tolist() == [[2.5, 3.0], [2.0, 5.0]]
    assert engine.model.took["norm.weight"].tolist() == [1.0, 1.0]
    assert engine._missing == set()

    factors["base_model.model.l.lora_B.weight"][1, 0] = 5.0
    save_file(factors, path)
    engine.model = Taker()
    with pytest.raises(
        ValueError, match=r"other bytes than were published: \['base_model\.model\.l\.lora_B\.weight'\]"
    ):
        engine.receive_weights(engine.parse_update_info(file_update(manifest, str(base))))
    assert engine.model.took == {}
