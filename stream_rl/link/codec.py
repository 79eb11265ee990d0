"""Typed msgpack with arrays as raw frames: no pickle, no lists of numbers, one decoder per direction.

A message becomes a header frame and one frame for each NumPy array in it. `pack` joins the frames into one blob for
storage. Arrays decoded from a frame are read-only views of it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Generic, TypeVar, get_args

import msgspec
import numpy as np

from stream_rl.errors import LinkError

T = TypeVar("T")
_DTYPES = {"i4": np.dtype("<i4"), "f4": np.dtype("<f4"), "b1": np.dtype("|b1")}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}


def encode(message: object) -> list[bytes]:
    """Header frame, then the arrays in the order the header names them. Arrays are copied."""
    frames: list[bytes] = [b""]

    def hook(value: object) -> tuple[str, int, tuple[int, ...]]:
        if not isinstance(value, np.ndarray):
            raise NotImplementedError(f"cannot encode {type(value)!r}")
        code = _CODES.get(value.dtype.newbyteorder("<"))
        if code is None:
            raise TypeError(f"arrays on the wire are int32, float32 or bool, not {value.dtype}")
        frames.append(np.ascontiguousarray(value, dtype=_DTYPES[code]).tobytes())
        return code, len(frames) - 1, value.shape

    frames[0] = msgspec.msgpack.encode(message, enc_hook=hook)
    return frames


class Decoder(Generic[T]):
    """Decodes frames to one type, in one thread. Anything else raises `LinkError`, never a half-built object."""

    def __init__(self, kind: Any) -> None:
        self._frames: Sequence[bytes | memoryview] = ()
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(kind, dec_hook=self._array)

    def decode(self, frames: Sequence[bytes | memoryview]) -> T:
        """The message in `frames`. Raises `LinkError`."""
        if not frames:
            raise LinkError("a message without frames")
        self._frames = frames
        try:
            return self._decoder.decode(frames[0])
        except (msgspec.DecodeError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise LinkError(f"undecodable message: {error}") from None
        finally:
            self._frames = ()

    def _array(self, kind: Any, value: Any) -> Any:
        match value:
            case [str(code), int(index), [*shape]] if all(type(n) is int and n >= 0 for n in shape):
                pass
            case _:
                raise ValueError("an array is written as [dtype, frame, shape]")
        expected = np.dtype(get_args(get_args(kind)[1])[0])
        dtype = _DTYPES[code]
        if dtype != expected:
            raise ValueError(f"array of {dtype} where {expected} is expected")
        if not 1 <= index < len(self._frames):
            raise ValueError(f"array frame {index} of {len(self._frames)}")
        array = np.frombuffer(self._frames[index], dtype=dtype).reshape(shape)
        # NumPy trusts a bool to be 0 or 1: any other byte makes sums and masks disagree with each other.
        if code == "b1" and array.view(np.uint8).max(initial=0) > 1:
            raise ValueError("a bool array with bytes other than 0 and 1")
        array.flags.writeable = False
        return array


def pack(message: object) -> bytes:
    """One blob: frame count, frame lengths, frames."""
    frames = encode(message)
    head = struct.pack(f"<I{len(frames)}Q", len(frames), *map(len, frames))
    return b"".join([head, *frames])


def unpack(blob: bytes | memoryview) -> list[memoryview]:
    """Frames of a blob made by `pack`. Raises `LinkError` on a damaged one."""
    view = memoryview(blob)
    try:
        (count,) = struct.unpack_from("<I", view)
        if count * 8 + 4 > len(view):
            raise LinkError(f"damaged blob: claims {count} frames in {len(view)} bytes")
        lengths = struct.unpack_from(f"<{count}Q", view, 4)
    except struct.error as error:
        raise LinkError(f"damaged blob: {error}") from None
    start = 4 + 8 * count
    if start + sum(lengths) != len(view):
        raise LinkError(f"damaged blob: frames claim {sum(lengths)} bytes, {len(view) - start} are there")
    frames = []
    for length in lengths:
        frames.append(view[start : start + length])
        start += length
    return frames
