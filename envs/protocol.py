"""What the pool and a worker say to each other: msgpack in frames of a length and a body, over a socket pair."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import msgspec

from stream_rl.types import Observation, Split, StepResult, Task

LIMIT_BYTES = 16 << 20  # a longer frame is taken for garbage
_LENGTH = struct.Struct("<I")


class _Message(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """Base: the struct's name is its tag."""


# pool -> worker


class Start(_Message, frozen=True, kw_only=True):
    """First message: the world this worker runs."""

    name: str  # registered name or "module:Class"
    options: dict[str, Any]  # constructor keywords
    path: str  # configuration path for errors, "environments.0"
    memory_bytes: int = 0  # resident memory past which the worker says `Heavy`; 0: no limit


class Reset(_Message, frozen=True, kw_only=True):
    """Begin an episode; the first one under this number makes its environment."""

    call: int  # answered under this number
    episode: int  # chosen by the pool
    task: Task  # what to solve
    seed: int  # world's seed


class Step(_Message, frozen=True, kw_only=True):
    """Act in an episode."""

    call: int  # answered under this number
    episode: int  # which
    action: str  # decoded text


class Close(_Message, frozen=True, kw_only=True):
    """The episode is over. Not answered."""

    episode: int  # which


# worker -> pool


class Started(_Message, frozen=True, kw_only=True):
    """The world can be made."""

    memory_bytes: int  # resident memory with one world made
    num_tasks: dict[Split, int | None]  # tasks of each split; None: the world does not count them
    max_episodes: int = 0  # that may be open at once; 0: any number


class StartFailed(_Message, frozen=True, kw_only=True):
    """The world cannot be made. The worker leaves."""

    path: str  # configuration path
    problem: str  # what is wrong there
    nearest: str | None = None  # what may have been meant


class Observed(_Message, frozen=True, kw_only=True):
    """Answer to `Reset`."""

    call: int  # which
    observation: Observation  # first one


class Stepped(_Message, frozen=True, kw_only=True):
    """Answer to `Step`."""

    call: int  # which
    result: StepResult  # of the action


class Raised(_Message, frozen=True, kw_only=True):
    """The environment raised an exception. That episode is lost, the worker lives."""

    call: int  # which
    error: str  # type and message
    lost: bool = False  # what held the episode is gone; it may be rolled out again


class Heavy(_Message, frozen=True, kw_only=True):
    """The worker holds more memory than it may. Said once; it goes on until the pool replaces it."""

    memory_bytes: int  # resident


ToWorker = Start | Reset | Step | Close
FromWorker = Started | StartFailed | Observed | Stepped | Raised | Heavy


def frame(message: msgspec.Struct) -> bytes:
    """A message ready to be written. Raises `ValueError` past `LIMIT_BYTES`."""
    body = msgspec.msgpack.encode(message)
    if len(body) > LIMIT_BYTES:
        raise ValueError(f"a message of {len(body)} bytes is longer than the {LIMIT_BYTES} that may be sent")
    return _LENGTH.pack(len(body)) + body


class Deframer:
    """Cuts a byte stream back into bodies."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> Iterator[bytearray]:
        """Bodies that are complete with `chunk`. Raises `ValueError` for a length no sender would announce."""
        self._buffer += chunk
        start, end = 0, len(self._buffer)
        try:
            while end - start >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(self._buffer, start)
                if length > LIMIT_BYTES:
                    raise ValueError(f"announces a message of {length} bytes, more than {LIMIT_BYTES}")
                if end - start - _LENGTH.size < length:
                    return
                start += _LENGTH.size + length
                yield self._buffer[start - length : start]
        finally:
            del self._buffer[:start]
