"""The hub over ZeroMQ."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from stream_rl.link import zmq_wire
from stream_rl.link.codec import Decoder
from stream_rl.link.hub_end import HubEnd
from stream_rl.link.limits import Limits
from stream_rl.link.running import running
from stream_rl.messages import ToOrchestrator


class ZmqHub(HubEnd):
    """A hub that listens on `address`."""

    def __init__(self, wire: zmq_wire.ZmqWire, receive: Decoder[ToOrchestrator], limits: Limits) -> None:
        super().__init__(wire, receive, limits)
        self.address = wire.address  # with the port that was really bound


@asynccontextmanager
async def open_hub(
    address: str = "tcp://127.0.0.1:0", *, receive: Decoder[ToOrchestrator] | None = None, limits: Limits | None = None
) -> AsyncIterator[ZmqHub]:
    """Listen for the length of the block, then say goodbye to everyone.

    Raises `ConfigError` if the address cannot be bound, or could be reached from another machine.
    """
    limits = limits or Limits()
    wire = zmq_wire.bind(address, limits)
    try:
        async with running(ZmqHub(wire, receive or Decoder(ToOrchestrator), limits)) as hub:
            yield hub
    finally:
        wire.close()
