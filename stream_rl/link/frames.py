"""The frames of the link protocol: what stands in front of a message on the wire.

A wire message is one encoded frame, followed by the payload frames of `stream_rl.link.codec` if it is `Data`.
After the greeting every frame carries the sender's whole `Standing`. Its numbers are cumulative, so a lost, repeated
or late one does no harm: the next one says it all again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from stream_rl.errors import LinkError

PROTOCOL = 1
MAX_PARTS = 16_384  # frames of one wire message; a group of trajectories has three for each sample

SHORTEST_SILENCE_S = 0.01  # a peer that asks for faster heartbeats than this allows is refused

Role = Literal["producer", "learner", "control"]
Payload = Sequence[bytes]
Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Text = Annotated[str, Meta(max_length=4096)]


class Terms(msgspec.Struct, frozen=True, array_like=True):
    """What one end tells the other in the greeting about itself as a receiver."""

    window_items: Annotated[int, Meta(ge=1)]  # first credit in messages
    window_bytes: Annotated[int, Meta(ge=1)]  # first credit in bytes
    max_message_bytes: Annotated[int, Meta(ge=1)]  # it drops a peer that sends a larger one
    silence_s: Annotated[float, Meta(ge=SHORTEST_SILENCE_S)]  # it calls a peer dead after this long


class Standing(msgspec.Struct, frozen=True, array_like=True):
    """Where one end stands, in both directions. Message numbers count from 1."""

    sent: Count  # last message it sent
    received: Count  # last message it received with all before it
    acked: Count  # last message its application acknowledged with all before it
    credit_items: Count  # the peer may send messages up to this number
    credit_bytes: Count  # and up to this many bytes of payload since the greeting


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Client to hub, repeated until `Welcome`: who is there."""

    protocol: int  # `PROTOCOL` of the client
    role: Role  # what it does
    name: Annotated[str, Meta(min_length=1, max_length=200)]  # "producer-0"; a newcomer of one name replaces the old
    terms: Terms  # the client as a receiver


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Hub to client: the session is open."""

    hub: Text  # differs for every start of the hub
    terms: Terms  # the hub as a receiver


class Data(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """One message; its payload follows."""

    seq: Annotated[int, Meta(ge=1, le=(1 << 63) - 1)]  # its number
    standing: Standing  # of the sender


class Status(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """An acknowledgement, new credit, or a heartbeat."""

    standing: Standing  # of the sender


class Resume(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Something was lost: send again everything after `standing.received`."""

    standing: Standing  # of the sender


class Goodbye(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """An orderly end. Answered with a goodbye."""

    reason: Text  # for the log


class Refused(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Hub to client: there is no such session, or not any more."""

    reason: Text  # what the client reports


Frame = Hello | Welcome | Data | Status | Resume | Goodbye | Refused

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Frame] = msgspec.msgpack.Decoder(Frame)


def encode_frame(frame: Frame, payload: Payload = ()) -> list[bytes]:
    """The parts of one wire message."""
    return [_encoder.encode(frame), *payload]


def decode_frame(parts: Sequence[bytes]) -> tuple[Frame, Payload]:
    """The frame and its payload. Raises `LinkError` for anything that is not one."""
    if not 1 <= len(parts) <= MAX_PARTS:
        raise LinkError(f"a wire message of {len(parts)} parts; 1 to {MAX_PARTS} are allowed")
    try:
        frame = _decoder.decode(parts[0])
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise LinkError(f"not a frame of the link protocol: {error}") from None
    if (len(parts) > 1) != isinstance(frame, Data):
        raise LinkError(f"{type(frame).__name__} with {len(parts) - 1} payload frames")
    return frame, parts[1:]
