"""Safetensors files written tensor by tensor, so that the whole model is never in memory twice.

Format: https://huggingface.co/docs/safetensors#format.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import torch
from torch import Tensor

from learner.weights.port import TensorSpec
from stream_rl.fingerprint import checksum
from stream_rl.types import TensorRecord

_NAMES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}
_ALIGNMENT = 8


def write(path: Path, specs: Sequence[TensorSpec], tensors: Iterable[Tensor]) -> tuple[TensorRecord, ...]:
    """Write `tensors`, in the order of `specs`, to `path`; returns what was written, with checksums.

    Raises `ValueError` for a tensor unlike its spec.
    """
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    position = 0
    for spec in specs:
        num_bytes = math.prod(spec.shape) * spec.dtype.itemsize
        header[spec.name] = {
            "dtype": _NAMES[spec.dtype],
            "shape": spec.shape,
            "data_offsets": (position, position + num_bytes),
        }
        position += num_bytes
    text = msgspec.json.encode(header)
    records = []
    text += b" " * (-len(text) % _ALIGNMENT)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for spec, tensor in zip(specs, tensors, strict=True):
            if tensor.dtype != spec.dtype or tuple(tensor.shape) != spec.shape:
                raise ValueError(
                    f"{spec.name}: expected {spec.dtype} {spec.shape}, got {tensor.dtype} {tuple(tensor.shape)}"
                )
            data = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data
            file.write(data)
            # Of the tensor, not of the file: what the disk makes of it is for the reader to find out.
            records.append(
                TensorRecord(name=spec.name, dtype=_NAMES[spec.dtype], shape=spec.shape, checksum=checksum(data))
            )
    return tuple(records)
