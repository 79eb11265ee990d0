"""The two implementations of hub and link behind one face, with faults on demand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import anyio
from anyio.abc import ByteStream, SocketAttribute, SocketStream, TaskGroup
from anyio.streams.stapled import MultiListener

from stream_rl.link.codec import Decoder
from stream_rl.link.hub_end import HubEnd
from stream_rl.link.limits import Limits
from stream_rl.link.link_end import LinkEnd
from stream_rl.link.memory import MemoryHub, open_memory_hub
from stream_rl.link.zmq_hub import open_hub
from stream_rl.link.zmq_link import open_link
from stream_rl.messages import ToOrchestrator, ToProducer

PATIENT = Limits(window_items=4, heartbeat_s=0.1, silence_s=30.0, goodbye_s=10.0)  # a busy machine may be silent, too
SHORT = Limits(window_items=4, heartbeat_s=0.1, silence_s=1.0, goodbye_s=2.0)  # where silence is what is tested


class Network(Protocol):
    """A hub and the way of a client to it."""

    hub: HubEnd

    def connect(self, name: str, limits: Limits = PATIENT) -> AbstractAsyncContextManager[LinkEnd[ToProducer]]:
        """A producer's link."""
        ...

    async def cut(self, name: str) -> None:
        """Break the producer's connection; what is under way is lost."""
        ...

    def restore(self, name: str) -> None:
        """Let it connect again."""
        ...


class MemoryNetwork:
    def __init__(self, hub: MemoryHub) -> None:
        self.hub: HubEnd = hub
        self._memory = hub

    def connect(self, name: str, limits: Limits = PATIENT) -> AbstractAsyncContextManager[LinkEnd[ToProducer]]:
        return self._memory.connect(role="producer", name=name, receive=Decoder[ToProducer](ToProducer), limits=limits)

    async def cut(self, name: str) -> None:
        self._memory.cut(name)

    def restore(self, name: str) -> None:
        self._memory.restore(name)


@asynccontextmanager
async def memory_network(limits: Limits = PATIENT) -> AsyncIterator[Network]:
    async with open_memory_hub(receive=Decoder[ToOrchestrator](ToOrchestrator), limits=limits) as hub:
        yield MemoryNetwork(hub)


class Proxy:
    """A TCP relay in front of the hub that can break every connection through it."""

    def __init__(self, target_port: int) -> None:
        self.port = 0
        self._target_port = target_port
        self._open = True
        self._streams: list[ByteStream] = []

    async def serve(self, tasks: TaskGroup) -> None:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
        self.port = listener.extra(SocketAttribute.local_port)
        tasks.start_soon(self._listen, listener)

    async def _listen(self, listener: MultiListener[SocketStream]) -> None:
        async with listener:
            await listener.serve(self._relay)

    async def cut(self) -> None:
        self._open = False
        for stream in self._streams:
            await anyio.aclose_forcefully(stream)
        self._streams.clear()

    def restore(self) -> None:
        self._open = True

    async def _relay(self, client: ByteStream) -> None:
        async with client:
            if not self._open:
                return
            async with (
                await anyio.connect_tcp("127.0.0.1", self._target_port) as server,
                anyio.create_task_group() as both,
            ):
                self._streams += [client, server]
                both.start_soon(self._copy, client, server, both)
                both.start_soon(self._copy, server, client, both)

    async def _copy(self, source: ByteStream, target: ByteStream, both: TaskGroup) -> None:
        try:
            async for chunk in source:
                await target.send(chunk)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        both.cancel_scope.cancel()


class ZmqNetwork:
    def __init__(self, hub: HubEnd, address: str, tasks: TaskGroup) -> None:
        self.hub = hub
        self._port = int(address.rpartition(":")[2])
        self._tasks = tasks
        self._proxies: dict[str, Proxy] = {}

    @asynccontextmanager
    async def connect(self, name: str, limits: Limits = PATIENT) -> AsyncIterator[LinkEnd[ToProducer]]:
        proxy = self._proxies[name] = Proxy(self._port)
        await proxy.serve(self._tasks)
        address = f"tcp://127.0.0.1:{proxy.port}"
        receive = Decoder[ToProducer](ToProducer)
        async with open_link(address, role="producer", name=name, receive=receive, limits=limits) as link:
            yield link

    async def cut(self, name: str) -> None:
        await self._proxies[name].cut()

    def restore(self, name: str) -> None:
        self._proxies[name].restore()


@asynccontextmanager
async def zmq_network(limits: Limits = PATIENT) -> AsyncIterator[Network]:
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        receive = Decoder[ToOrchestrator](ToOrchestrator)
        try:
            async with open_hub("tcp://127.0.0.1:0", receive=receive, limits=limits) as hub:
                yield ZmqNetwork(hub, hub.address, tasks)
        except Exception as error:
            failure = error  # raised below as it is: the group would wrap it
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
