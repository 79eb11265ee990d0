from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import xxhash
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from stream_rl import fingerprint
from stream_rl.errors import WeightsRejected
from stream_rl.types import TensorRecord

TENSORS: dict[str, Any] = {
    "b": np.arange(6, dtype=np.float32).reshape(2, 3),
    "a": np.asarray([1, -1], dtype=np.int64),
    "scalar": np.asarray(2.5, dtype=np.float64),
    "empty": np.zeros((0, 3), dtype=np.float32),
}


def saved(path: Path, tensors: dict[str, Any], **metadata: str) -> Path:
    save_file(tensors, path, metadata=metadata or None)
    return path


def test_is_the_digest_the_docstring_promises(tmp_path: Path) -> None:
    """Two levels, by hand: XXH3-128 of each tensor's bytes, then BLAKE2b over one line of JSON for each, by name."""
    expected = hashlib.blake2b(digest_size=16)
    for name, dtype, shape, data in [
        ("a", "I64", [2], np.asarray([1, -1], dtype="<i8").tobytes()),
        ("b", "F32", [2, 3], np.arange(6, dtype="<f4").tobytes()),
        ("empty", "F32", [0, 3], b""),
        ("scalar", "F64", [], np.asarray(2.5, dtype="<f8").tobytes()),
    ]:
        checksum = xxhash.xxh3_128(data).hexdigest()
        expected.update(json.dumps([name, dtype, shape, checksum], separators=(",", ":")).encode() + b"\n")
    assert fingerprint.of_file(saved(tmp_path / "w", TENSORS)) == expected.hexdigest()


def test_order_and_metadata_do_not_matter(tmp_path: Path) -> None:
    """A hand-made file: tensors in another order than any writer's, with metadata."""
    first = fingerprint.of_file(saved(tmp_path / "one", {"x": np.ones(2, np.float32), "y": np.zeros(1, np.float32)}))
    header = json.dumps(
        {
            "__metadata__": {"writer": "by hand"},
            "y": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
            "x": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]},
        }
    ).encode()
    data = np.asarray([0, 1, 1], dtype="<f4").tobytes()
    (tmp_path / "two").write_bytes(len(header).to_bytes(8, "little") + header + data)
    assert fingerprint.of_file(tmp_path / "two") == first


@pytest.mark.parametrize(
    "other",
    [
        TENSORS | {"a": np.asarray([1, -2], dtype=np.int64)},  # one byte
        TENSORS | {"a": np.asarray([1, -1], dtype=np.int32)},  # type
        TENSORS | {"b": TENSORS["b"].reshape(3, 2)},  # shape, same bytes
        {name: value for name, value in TENSORS.items() if name != "empty"},  # a tensor without bytes
        {("c" if name == "b" else name): value for name, value in TENSORS.items()},  # a name
    ],
)
def test_everything_else_matters(tmp_path: Path, other: dict[str, Any]) -> None:
    assert fingerprint.of_file(saved(tmp_path / "one", TENSORS)) != fingerprint.of_file(saved(tmp_path / "two", other))


@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_file_cut_short_is_refused(tmp_path: Path, data: st.DataObject) -> None:
    whole = saved(tmp_path / "w", TENSORS).read_bytes()
    (tmp_path / "cut").write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(WeightsRejected, match="cut"):
        fingerprint.of_file(tmp_path / "cut")


@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_one_wrong_byte_of_data_changes_the_digest(tmp_path: Path, data: st.DataObject) -> None:
    path = saved(tmp_path / "w", TENSORS)
    whole = bytearray(path.read_bytes())
    good = fingerprint.of_file(path)
    first = 8 + int.from_bytes(whole[:8], "little")
    whole[data.draw(st.integers(first, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(whole)
    assert fingerprint.of_file(path) != good


def test_what_is_no_weights_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "w"
    wrong = {
        "header of": b"\xff" * 64,
        "header is damaged": (5).to_bytes(8, "little") + b"hello",
        "holds no tensor": (2).to_bytes(8, "little") + b"{}",
    }
    for told, content in wrong.items():
        path.write_bytes(content)
        with pytest.raises(WeightsRejected, match=told):
            fingerprint.of_file(path)
    for told, entry in {
        "unknown dtype F7": {"dtype": "F7", "shape": [1], "data_offsets": [0, 4]},
        "expected 0 to 8": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]},
        "expected 0 to 4": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]},
    }.items():
        header = json.dumps({"x": entry}).encode()
        path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
        with pytest.raises(WeightsRejected, match=told):
            fingerprint.of_file(path)
    with pytest.raises(WeightsRejected, match="No such file"):
        fingerprint.of_file(tmp_path / "gone")


def test_manifests_are_verified_against_their_file(tmp_path: Path) -> None:
    path = saved(tmp_path / "w", TENSORS)
    manifest = fingerprint.manifest_of(path, run_id="r", version=3)
    assert fingerprint.verify(manifest) == manifest.fingerprint == fingerprint.of_file(path)
    for told, wrong in {
        "should have fingerprint": msgspec.structs.replace(manifest, fingerprint="00"),
        f"the file has {manifest.num_bytes}": msgspec.structs.replace(manifest, num_bytes=1),
        "No such file": msgspec.structs.replace(manifest, path=str(tmp_path / "gone")),
    }.items():
        with pytest.raises(WeightsRejected, match=told):
            fingerprint.verify(wrong)


def test_a_checksum_is_the_published_one_of_its_algorithm() -> None:
    """XXH3-128 of nothing, from the reference implementation's own test vectors (seed 0)."""
    assert fingerprint.checksum(b"") == "99aa06d3014798d86001c324468d497f"


@pytest.mark.parametrize("name", ["a", "b", "scalar"])
def test_a_flipped_byte_names_its_tensor(tmp_path: Path, name: str) -> None:
    path = saved(tmp_path / "w", TENSORS)
    manifest = fingerprint.manifest_of(path, run_id="r", version=3)
    whole = bytearray(path.read_bytes())
    header = int.from_bytes(whole[:8], "little")
    begin = json.loads(whole[8 : 8 + header])[name]["data_offsets"][0]
    whole[8 + header + begin] ^= 1
    path.write_bytes(whole)
    with pytest.raises(WeightsRejected, match=rf"damaged or overwritten after it was published in `{name}`$"):
        fingerprint.verify(manifest)


def test_a_manifest_that_contradicts_itself_is_refused(tmp_path: Path) -> None:
    """A checksum changed on the way: the file is good, but nobody could tell which tensor is bad when one is."""
    manifest = fingerprint.manifest_of(saved(tmp_path / "w", TENSORS), run_id="r", version=3)
    first, *rest = manifest.tensors
    wrong = msgspec.structs.replace(manifest, tensors=(msgspec.structs.replace(first, checksum="00"), *rest))
    with pytest.raises(WeightsRejected, match="the manifest is damaged"):
        fingerprint.verify(wrong)
    over_nccl = msgspec.structs.replace(wrong, transport="nccl", path="nowhere")
    with pytest.raises(WeightsRejected, match="the manifest is damaged"):
        fingerprint.verify(over_nccl)
    assert fingerprint.verify(msgspec.structs.replace(manifest, transport="nccl", path="nowhere")) == (
        manifest.fingerprint
    )


def test_a_manifest_without_records_is_verified_as_a_whole(tmp_path: Path) -> None:
    """As an older learner writes it."""
    manifest = fingerprint.manifest_of(saved(tmp_path / "w", TENSORS), run_id="r", version=3)
    assert fingerprint.verify(msgspec.structs.replace(manifest, tensors=())) == manifest.fingerprint


def test_differences_are_what_changed_what_is_gone_and_what_is_new() -> None:
    def records(**checksums: str) -> list[TensorRecord]:
        return [TensorRecord(name=n, dtype="F32", shape=(1,), checksum=c) for n, c in checksums.items()]

    assert fingerprint.differences(records(a="1", b="2", c="3"), records(d="4", c="3", b="9")) == ("a", "b", "d")


def test_manifests_survive_the_disk(tmp_path: Path) -> None:
    manifest = fingerprint.manifest_of(saved(tmp_path / "w", TENSORS), run_id="r", version=3)
    fingerprint.save_manifest(manifest, tmp_path / "m.json")
    assert fingerprint.load_manifest(tmp_path / "m.json") == manifest
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.json", "w"]
    (tmp_path / "m.json").write_text('{"run_id": "r"}')
    with pytest.raises(WeightsRejected, match=r"m\.json: not a weights manifest"):
        fingerprint.load_manifest(tmp_path / "m.json")
    with pytest.raises(WeightsRejected, match="No such file"):
        fingerprint.load_manifest(tmp_path / "gone.json")
