"""What identifies a set of weights: one digest over every tensor of a safetensors file, and the manifest that names it.

The learner writes the digest, the generator computes it again from what it is about to load. Only the file format is
parsed here (https://huggingface.co/docs/safetensors#format): no torch, and never more than one chunk in memory.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import BinaryIO

import msgspec

from stream_rl.errors import WeightsRejected
from stream_rl.types import WeightsManifest

_CHUNK_BYTES = 1 << 20
_MAX_HEADER_BYTES = 100_000_000  # the format's own limit
_LENGTH_BYTES = 8
_ITEM_BYTES = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E5M2": 1,
    "F8_E4M3": 1,
    "F8_E8M0": 1,
    "I16": 2,
    "U16": 2,
    "F16": 2,
    "BF16": 2,
    "I32": 4,
    "U32": 4,
    "F32": 4,
    "C64": 8,
    "F64": 8,
    "I64": 8,
    "U64": 8,
}


class _Entry(msgspec.Struct, frozen=True):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]  # relative to the first byte after the header


def of_file(path: str | os.PathLike[str]) -> str:
    """Hex digest (BLAKE2b, 16 bytes) over name, dtype, shape and bytes of every tensor, in name order.

    The order of tensors in the file and its free-form metadata do not matter. Raises `WeightsRejected` for a file
    that is missing, truncated, or not a safetensors file.
    """
    try:
        with open(path, "rb") as file:
            return _digest(file, Path(path))
    except OSError as error:
        raise WeightsRejected(f"{path}: cannot read the weights: {error.strerror or error}") from error


def manifest_of(path: str | os.PathLike[str], *, run_id: str, version: int) -> WeightsManifest:
    """The manifest of a finished weights file. Raises `WeightsRejected` as `of_file` does."""
    fingerprint = of_file(path)
    return WeightsManifest(
        run_id=run_id,
        version=version,
        path=os.fspath(path),
        fingerprint=fingerprint,
        num_bytes=os.stat(path).st_size,
    )


def verify(manifest: WeightsManifest) -> str:
    """Digest of the manifest's file, which is the one it promises; `WeightsRejected` if it is not."""
    try:
        num_bytes = os.stat(manifest.path).st_size
    except OSError as error:
        raise WeightsRejected(f"{manifest.path}: cannot read the weights: {error.strerror or error}") from error
    if num_bytes != manifest.num_bytes:
        raise WeightsRejected(
            f"{manifest.path}: version {manifest.version} should have {manifest.num_bytes} bytes, "
            f"the file has {num_bytes}"
        )
    found = of_file(manifest.path)
    if found != manifest.fingerprint:
        raise WeightsRejected(
            f"{manifest.path}: version {manifest.version} should have fingerprint {manifest.fingerprint}, "
            f"the file has {found}: it was damaged or overwritten after it was published"
        )
    return found


def save_manifest(manifest: WeightsManifest, path: str | os.PathLike[str]) -> None:
    """Write the manifest as JSON; it appears under `path` complete or not at all."""
    target = Path(path)
    partial = target.with_name(f"{target.name}.partial")
    with open(partial, "wb") as file:
        file.write(msgspec.json.encode(manifest))
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, target)


def load_manifest(path: str | os.PathLike[str]) -> WeightsManifest:
    """Read a manifest written by `save_manifest`; `WeightsRejected` if it is missing or not one."""
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=WeightsManifest)
    except OSError as error:
        raise WeightsRejected(f"{path}: cannot read the weights manifest: {error.strerror or error}") from error
    except msgspec.DecodeError as error:
        raise WeightsRejected(f"{path}: not a weights manifest: {error}") from error


def _digest(file: BinaryIO, path: Path) -> str:
    entries, data_start = _read_header(file, path)
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(entries):
        entry = entries[name]
        begin, end = entry.data_offsets
        # One JSON array for each tensor: names with odd characters cannot make two different files look alike.
        digest.update(msgspec.json.encode((name, entry.dtype, entry.shape, end - begin)))
        file.seek(data_start + begin)
        left = end - begin
        while left:
            chunk = file.read(min(left, _CHUNK_BYTES))
            if not chunk:
                raise WeightsRejected(f"{path}: tensor `{name}` is cut short: {left} of {end - begin} bytes missing")
            digest.update(chunk)
            left -= len(chunk)
    return digest.hexdigest()


def _read_header(file: BinaryIO, path: Path) -> tuple[dict[str, _Entry], int]:
    file_bytes = os.fstat(file.fileno()).st_size
    header_bytes = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    data_start = _LENGTH_BYTES + header_bytes
    if header_bytes > _MAX_HEADER_BYTES or data_start > file_bytes:
        raise WeightsRejected(f"{path}: not a whole safetensors file: header of {header_bytes} bytes in {file_bytes}")
    try:
        raw = msgspec.json.decode(file.read(header_bytes), type=dict[str, msgspec.Raw])
        raw.pop("__metadata__", None)
        entries = {name: msgspec.json.decode(value, type=_Entry) for name, value in raw.items()}
    except msgspec.DecodeError as error:
        raise WeightsRejected(f"{path}: the safetensors header is damaged: {error}") from error
    if not entries:
        raise WeightsRejected(f"{path}: the safetensors file holds no tensor")
    _check_layout(entries, file_bytes - data_start, path)
    return entries, data_start


def _check_layout(entries: dict[str, _Entry], data_bytes: int, path: Path) -> None:
    """The format allows no hole and no overlap: every byte of the file belongs to exactly one tensor."""
    position = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
        begin, end = entry.data_offsets
        num_bytes = _ITEM_BYTES.get(entry.dtype)
        if num_bytes is None:
            raise WeightsRejected(f"{path}: tensor `{name}` has the unknown dtype {entry.dtype}")
        for size in entry.shape:
            num_bytes *= size
        if begin != position or end - begin != num_bytes:
            raise WeightsRejected(
                f"{path}: tensor `{name}` ({entry.dtype}, {list(entry.shape)}) lies at bytes {begin} to {end}; "
                f"expected {position} to {position + num_bytes}"
            )
        position = end
    if position != data_bytes:
        raise WeightsRejected(f"{path}: the tensors take {position} bytes, the file holds {data_bytes}: it is damaged")
