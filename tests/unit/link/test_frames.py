from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rl.errors import ConfigError, LinkError
from stream_rl.link.frames import (
    MAX_PARTS,
    PROTOCOL,
    Data,
    Frame,
    Goodbye,
    Hello,
    Refused,
    Resume,
    Standing,
    Status,
    Terms,
    Welcome,
    decode_frame,
    encode_frame,
)
from stream_rl.link.limits import Limits

STANDING = Standing(5, 4, 3, 259, 1 << 20)
TERMS = Terms(256, 1 << 20, 1 << 16, 20.0)


@pytest.mark.parametrize(
    ("frame", "payload"),
    [
        (Hello(PROTOCOL, "producer", "producer-0", TERMS), []),
        (Welcome("hub", TERMS), []),
        (Data(5, STANDING), [b"header", b"", b"array"]),
        (Status(STANDING), []),
        (Resume(STANDING), []),
        (Goodbye("closed"), []),
        (Refused("no"), []),
    ],
)
def test_frames_arrive_as_they_were_sent(frame: Frame, payload: list[bytes]) -> None:
    assert decode_frame(encode_frame(frame, payload)) == (frame, payload)


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [b""],
        [b"\xc1"],
        [b"x"] * (MAX_PARTS + 1),
        [*encode_frame(Status(STANDING)), b"payload of something that has none"],
        encode_frame(Data(1, STANDING)),  # a message without its payload
        [msgspec.msgpack.encode([99, "no such frame"])],
        [msgspec.msgpack.encode([3, 0, [5, 4, 3, 2, 1]]), b"x"],  # messages count from 1
        [msgspec.msgpack.encode([4, [5, 4, 3, -2, 1]])],  # negative credit
        [msgspec.msgpack.encode([4, [5, 4, 3]])],
        [msgspec.msgpack.encode([1, 1, "admin", "name", [1, 1, 1, 1.0]])],  # no such role
        [msgspec.msgpack.encode([1, 1, "producer", "", [1, 1, 1, 1.0]])],
        [msgspec.msgpack.encode([1, 1, "producer", "p", [0, 1, 1, 1.0]])],  # a window that can never open
        [msgspec.msgpack.encode([1, 1, "producer", "p", [1, 1, 1, 1e-9]])],  # would make us a heartbeat flood
        [msgspec.msgpack.encode([1, 1, "producer", "p", [1, 1, 1, float("nan")]])],
        [msgspec.msgpack.encode([7, "long" * 5000])],
        [b"\x91" * 100_000],
    ],
)
def test_anything_else_is_a_link_error(parts: list[bytes]) -> None:
    with pytest.raises(LinkError):
        decode_frame(parts)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.binary(max_size=40), max_size=3))
def test_random_bytes_are_a_frame_or_a_link_error(parts: list[bytes]) -> None:
    with contextlib.suppress(LinkError):
        decode_frame(parts)


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"window_items": 0}, "limits.window_items"),
        ({"max_message_bytes": 11, "window_bytes": 10}, "limits.max_message_bytes"),
        ({"heartbeat_s": 1.0, "silence_s": 1.5}, "limits.silence_s"),
        ({"heartbeat_s": 0.001, "silence_s": 0.002}, "limits.silence_s"),
        ({"goodbye_s": -1.0}, "limits.goodbye_s"),
    ],
)
def test_impossible_limits_are_refused_by_name(changes: dict[str, float], path: str) -> None:
    with pytest.raises(ConfigError) as caught:
        msgspec.convert(changes, Limits)
    assert caught.value.path == path
