"""The weights of a Hugging Face folder as files: which ones, what is in them, what identifies them. No torch."""

from __future__ import annotations

from pathlib import Path

import msgspec

from stream_rl import fingerprint
from stream_rl.errors import WeightsRejected

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"


class _Index(msgspec.Struct, frozen=True):
    weight_map: dict[str, str]  # tensor -> file


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The safetensors files of a model, in name order. Raises `WeightsRejected` if there are none."""
    index = folder / _INDEX
    if index.is_file():
        try:
            names = set(msgspec.json.decode(index.read_bytes(), type=_Index).weight_map.values())
        except msgspec.DecodeError as error:
            raise WeightsRejected(f"{index}: not an index of safetensors files: {error}") from error
        return tuple(folder / name for name in sorted(names))
    if (folder / _SINGLE).is_file():
        return (folder / _SINGLE,)
    raise WeightsRejected(f"{folder} holds neither {_SINGLE} nor {_INDEX}; adapters need a base in safetensors files")


def shapes_of(folder: Path) -> dict[str, tuple[int, ...]]:
    """Shape of every tensor; only headers are read. Raises `WeightsRejected`."""
    return {name: shape for file in weight_files(folder) for name, shape in fingerprint.shapes_of(file).items()}


def fingerprint_of(folder: Path) -> str:
    """`fingerprint.of_tensors` over all files: how a model is cut into files does not matter. Reads every byte."""
    return fingerprint.of_tensors(record for file in weight_files(folder) for record in fingerprint.tensors_of(file))
