from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from learner.weights import safetensors
from learner.weights.files import FilesPublisher
from learner.weights.port import Publisher, TensorSpec
from stream_rl.fingerprint import load_manifest, of_file
from tests.unit.learner.builders import tiny_policy

SPECS = (
    TensorSpec(name="b", dtype=torch.bfloat16, shape=(3,)),
    TensorSpec(name="a", dtype=torch.float32, shape=(2, 2)),
)


def tensors(value: float = 1.0) -> list[Tensor]:
    return [torch.full((3,), value, dtype=torch.bfloat16), torch.tensor([[value, 2.0], [3.0, 4.0]])]


def test_the_file_is_what_the_library_reads(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    safetensors.write(path, SPECS, iter(tensors()))
    found = load_file(path)
    assert set(found) == {"a", "b"}
    assert all(torch.equal(found[s.name], t) for s, t in zip(SPECS, tensors(), strict=True))


def test_transposed_views_are_written_as_they_look(tmp_path: Path) -> None:
    view = torch.arange(6.0).reshape(2, 3).T
    safetensors.write(tmp_path / "x", [TensorSpec(name="a", dtype=torch.float32, shape=(3, 2))], [view])
    assert torch.equal(load_file(tmp_path / "x")["a"], view)


@pytest.mark.parametrize("bad", [[torch.zeros(3, dtype=torch.bfloat16)], [torch.zeros(2), torch.zeros(2, 2)]])
def test_tensors_unlike_their_specs_are_an_error(tmp_path: Path, bad: list[Tensor]) -> None:
    with pytest.raises(ValueError, match=r"expected|shorter"):
        safetensors.write(tmp_path / "x", SPECS, bad)


def test_publish_keeps_the_last_two(tmp_path: Path) -> None:
    publisher: Publisher = FilesPublisher(tmp_path, "run-1")
    for version in range(4):
        manifest = publisher.publish(version, SPECS, tensors(version))
        assert manifest.version == version
        assert manifest.fingerprint == of_file(manifest.path)
        assert manifest.num_bytes == Path(manifest.path).stat().st_size
        assert load_manifest(Path(manifest.path).with_suffix(".json")) == manifest
    names = sorted(p.name for p in (tmp_path / "run-1").iterdir())
    assert names == ["v00002.json", "v00002.safetensors", "v00003.json", "v00003.safetensors"]
    assert load_file(tmp_path / "run-1" / "v00002.safetensors")["a"][0, 0] == 2.0


def test_versions_of_a_lost_future_are_removed_and_strangers_are_not(tmp_path: Path) -> None:
    other = FilesPublisher(tmp_path, "other")
    foreign = other.publish(7, SPECS, tensors(7.0))
    before = FilesPublisher(tmp_path, "run")
    for version in (8, 9):
        before.publish(version, SPECS, tensors(version))
    (tmp_path / "run" / "v00009.safetensors.partial").write_bytes(b"half")
    (tmp_path / "run" / "notes.txt").write_text("mine")
    resumed = FilesPublisher(tmp_path, "run")
    resumed.publish(7, SPECS, tensors(0.5))
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == ["notes.txt", "v00007.json", "v00007.safetensors"]
    assert of_file(foreign.path) == foreign.fingerprint


@pytest.mark.parametrize("run_id", ["", "a/b", "..", ".hidden"])
def test_run_ids_that_are_no_folder_names_are_refused(tmp_path: Path, run_id: str) -> None:
    with pytest.raises(ValueError, match="run id"):
        FilesPublisher(tmp_path, run_id)


def test_a_model_publishes_its_parameters_under_their_own_names(tmp_path: Path) -> None:
    model = tiny_policy().causal_lm
    parameters = dict(model.named_parameters())
    specs = [TensorSpec(name=n, dtype=p.dtype, shape=tuple(p.shape)) for n, p in parameters.items()]
    manifest = FilesPublisher(tmp_path, "run").publish(1, specs, (p.detach() for p in parameters.values()))
    found = load_file(manifest.path)
    assert "lm_head.weight" not in found  # tied
    assert all(torch.equal(found[name], p) for name, p in parameters.items())
