from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from learner.weights import safetensors
from learner.weights.files import FilesPublisher
from learner.weights.port import Publisher, TensorSpec
from learner.weights.wire import on_wire, wire_specs
from stream_rl.errors import WeightsRejected
from stream_rl.fingerprint import load_manifest, of_file, tensors_of, verify
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


def test_the_records_are_what_a_reader_finds(tmp_path: Path) -> None:
    records = safetensors.write(tmp_path / "x", SPECS, iter(tensors()))
    assert records == tensors_of(tmp_path / "x")
    assert [(r.name, r.dtype, r.shape) for r in records] == [("b", "BF16", (3,)), ("a", "F32", (2, 2))]


def test_a_tensor_damaged_on_the_disk_is_named(tmp_path: Path) -> None:
    manifest = FilesPublisher(tmp_path, "run").publish(1, SPECS, tensors())
    whole = bytearray(Path(manifest.path).read_bytes())
    whole[-1] ^= 0x80  # the sign of the last number of the last tensor
    Path(manifest.path).write_bytes(whole)
    with pytest.raises(WeightsRejected, match="after it was published in `a`"):
        verify(manifest)


def test_rounding_is_to_the_nearest_and_leaves_integers_alone(tmp_path: Path) -> None:
    """bfloat16 has 8 significant bits: 257 lies between 256 and 258, as near to either, and 256 is the even one."""
    specs = (
        TensorSpec(name="x", dtype=torch.float32, shape=(3,)),
        TensorSpec(name="h", dtype=torch.float16, shape=(1,)),
    )
    given = [torch.tensor([257.0, 257.5, -1.0]), torch.tensor([0.5], dtype=torch.float16)]
    manifest = FilesPublisher(tmp_path, "run", dtype=torch.bfloat16).publish(1, specs, given)
    assert [record.dtype for record in manifest.tensors] == ["BF16", "BF16"]
    found = load_file(manifest.path)
    assert found["x"].tolist() == [256.0, 258.0, -1.0]
    assert manifest.fingerprint == of_file(manifest.path)
    whole = torch.tensor([2**31 - 1], dtype=torch.int32)
    assert next(on_wire([whole], torch.bfloat16)) is whole
    assert wire_specs(specs, None) == specs


def test_manifests_say_how_to_get_at_the_bytes(tmp_path: Path) -> None:
    publisher = FilesPublisher(tmp_path, "run", transport="stream", address="tcp://127.0.0.1:7")
    manifest = publisher.publish(1, SPECS, tensors())
    assert (manifest.transport, manifest.address) == ("stream", "tcp://127.0.0.1:7")
    assert load_manifest(Path(manifest.path).with_suffix(".json")) == manifest


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
