"""What identifies a set of weights: a checksum of every tensor, one digest over all, and the manifest that names them.

The learner takes the checksums as it writes, the generator takes them again from what it is about to load. A damaged
file therefore names its damaged tensors. Only the file format is parsed here
(https://huggingface.co/docs/safetensors#format): no torch, and never more than one chunk in memory.

XXH3 finds damage, not malice: whoever can write to the weights can also write the manifest.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import msgspec
import xxhash

from stream_rl.errors import WeightsRejected
from stream_rl.types import AdapterRecord, TensorRecord, WeightsManifest

_CHUNK_BYTES = 1 << 20
_MAX_HEADER_BYTES = 100_000_000  # the format's own limit
_LENGTH_BYTES = 8
_MAX_NAMED = 5  # damaged tensors an error lists
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


def checksum(data: bytes | bytearray | memoryview) -> str:
    """XXH3-128 of a tensor's bytes, hex."""
    return xxhash.xxh3_128_hexdigest(data)


def of_tensors(tensors: Iterable[TensorRecord], adapter: AdapterRecord | None = None) -> str:
    """Hex digest (BLAKE2b, 16 bytes) over name, dtype, shape and checksum of every tensor, in name order.

    Of a LoRA version also over rank, alpha and base: with others, the same factors are other weights. Each record
    enters as one JSON array and a line feed, which JSON writes inside no string: names with odd characters cannot make
    two different sets look alike.
    """
    digest = hashlib.blake2b(digest_size=16)
    for record in sorted(tensors, key=lambda record: record.name):
        digest.update(msgspec.json.encode((record.name, record.dtype, record.shape, record.checksum)))
        digest.update(b"\n")
    if adapter is not None:
        digest.update(msgspec.json.encode((adapter.rank, adapter.alpha, adapter.base)))
    return digest.hexdigest()


def tensors_of(path: str | os.PathLike[str]) -> tuple[TensorRecord, ...]:
    """Every tensor of a safetensors file with its checksum, in the order of the file.

    Raises `WeightsRejected` for a file that is missing, truncated, or not a safetensors file.
    """
    try:
        with open(path, "rb", buffering=0) as file:
            return _read(file, Path(path))
    except OSError as error:
        raise WeightsRejected(f"{path}: cannot read the weights: {error.strerror or error}") from error


def of_file(path: str | os.PathLike[str]) -> str:
    """`of_tensors` of a file: the order of its tensors and its free-form metadata do not matter.

    Raises `WeightsRejected` as `tensors_of` does.
    """
    return of_tensors(tensors_of(path))


def shapes_of(path: str | os.PathLike[str]) -> dict[str, tuple[int, ...]]:
    """Shape of every tensor of a safetensors file, from its header alone. Raises `WeightsRejected` as `tensors_of`."""
    try:
        with open(path, "rb", buffering=0) as file:
            return {name: entry.shape for name, entry in _read_header(file, Path(path))[0]}
    except OSError as error:
        raise WeightsRejected(f"{path}: cannot read the weights: {error.strerror or error}") from error


def manifest_of(
    path: str | os.PathLike[str], *, run_id: str, version: int, adapter: AdapterRecord | None = None
) -> WeightsManifest:
    """The manifest of a finished weights file. Raises `WeightsRejected` as `tensors_of` does."""
    tensors = tensors_of(path)
    return WeightsManifest(
        run_id=run_id,
        version=version,
        path=os.fspath(path),
        fingerprint=of_tensors(tensors, adapter),
        num_bytes=os.stat(path).st_size,
        tensors=tensors,
        adapter=adapter,
    )


def verify(manifest: WeightsManifest) -> str:
    """Digest of the manifest's file, which is the one it promises; else `WeightsRejected` naming the wrong tensors.

    Over NCCL there is no file to read: the manifest's own consistency is all that is looked at here, and the engine
    checks each tensor as it arrives.
    """
    if manifest.transport == "nccl":
        require_consistent(manifest)
        return manifest.fingerprint
    try:
        num_bytes = os.stat(manifest.path).st_size
    except OSError as error:
        raise WeightsRejected(f"{manifest.path}: cannot read the weights: {error.strerror or error}") from error
    told = f"{manifest.path}: version {manifest.version}"
    if num_bytes != manifest.num_bytes:
        raise WeightsRejected(f"{told} should have {manifest.num_bytes} bytes, the file has {num_bytes}")
    require_consistent(manifest)
    tensors = tensors_of(manifest.path)
    found = of_tensors(tensors, manifest.adapter)
    if found != manifest.fingerprint:
        wrong = differences(manifest.tensors, tensors) if manifest.tensors else ()
        where = f" in {_list(wrong)}" if wrong else ""
        raise WeightsRejected(
            f"{told} should have fingerprint {manifest.fingerprint}, the file has {found}: "
            f"it was damaged or overwritten after it was published{where}"
        )
    return found


def require_consistent(manifest: WeightsManifest) -> None:
    """A manifest's records must give its own fingerprint; `WeightsRejected` if they do not."""
    if manifest.tensors and (own := of_tensors(manifest.tensors, manifest.adapter)) != manifest.fingerprint:
        raise WeightsRejected(
            f"{manifest.path}: version {manifest.version} should have fingerprint {manifest.fingerprint}, "
            f"but the manifest's own tensors give {own}: the manifest is damaged"
        )


def differences(wanted: Iterable[TensorRecord], found: Iterable[TensorRecord]) -> tuple[str, ...]:
    """Names of the tensors that are not as wanted, are missing, or should not be there, in name order."""
    first = {record.name: record for record in wanted}
    second = {record.name: record for record in found}
    return tuple(name for name in sorted(first.keys() | second.keys()) if first.get(name) != second.get(name))


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


def _read(file: BinaryIO, path: Path) -> tuple[TensorRecord, ...]:
    entries, data_start = _read_header(file, path)
    buffer = memoryview(bytearray(_CHUNK_BYTES))  # one for the whole file: it stays in the processor's cache
    file.seek(data_start)
    return tuple(
        TensorRecord(name=name, dtype=entry.dtype, shape=entry.shape, checksum=_checksum(file, name, entry, buffer))
        for name, entry in entries
    )


def _checksum(file: BinaryIO, name: str, entry: _Entry, buffer: memoryview) -> str:
    begin, end = entry.data_offsets
    digest = xxhash.xxh3_128()
    left = end - begin
    while left:
        count = file.readinto(buffer[: min(left, len(buffer))])  # type: ignore[attr-defined]  # a raw file has it
        if not count:
            raise WeightsRejected(f"{file.name}: tensor `{name}` is cut short: {left} of {end - begin} bytes missing")
        digest.update(buffer[:count])
        left -= count
    return digest.hexdigest()


def _read_header(file: BinaryIO, path: Path) -> tuple[list[tuple[str, _Entry]], int]:
    """Entries in the order of their bytes, and where the bytes begin."""
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
    ordered = sorted(entries.items(), key=lambda item: item[1].data_offsets)
    _check_layout(ordered, file_bytes - data_start, path)
    return ordered, data_start


def _check_layout(entries: list[tuple[str, _Entry]], data_bytes: int, path: Path) -> None:
    """The format allows no hole and no overlap: every byte of the file belongs to exactly one tensor."""
    position = 0
    for name, entry in entries:
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


def _list(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(f"`{name}`" for name in names[:_MAX_NAMED]) + more
