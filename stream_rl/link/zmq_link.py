"""A client's link over ZeroMQ."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from stream_rl.link import zmq_wire
from stream_rl.link.codec import Decoder
from stream_rl.link.frames import Role
from stream_rl.link.limits import Limits
from stream_rl.link.link_end import LinkEnd
from stream_rl.link.running import running

R = TypeVar("R")


@asynccontextmanager
async def open_link(
    address: str, *, role: Role, name: str, receive: Decoder[R], limits: Limits | None = None
) -> AsyncIterator[LinkEnd[R]]:
    """A session with the hub at `address` for the length of the block. Waits for the hub's welcome first.

    `name` is unique among the live processes of a role: a newcomer replaces the one that had it. Raises `LinkError`
    if the hub refuses or does not answer within `limits.silence_s`, `ConfigError` for a malformed address.
    """
    limits = limits or Limits()
    wire = zmq_wire.connect(address, session_route(), limits)
    try:
        async with running(LinkEnd(wire, hub=address, role=role, name=name, receive=receive, limits=limits)) as link:
            await link.greeted()
            yield link
    finally:
        wire.close()


def session_route() -> bytes:
    """A name for a new session: random, and not starting with the zero byte that ZeroMQ keeps for itself."""
    return b"\x01" + secrets.token_bytes(7)
