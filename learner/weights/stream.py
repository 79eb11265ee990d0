"""The learner's end of the `stream` transport: generators that share no disk with it pull the version files from here.

Consumes: questions for parts of a file. Waits for: them. Produces: pieces with checksums. Unblocked by: a reader.
The orchestrator sees only the manifest, which names this server's address.

Blocking threads over plain sockets: the bytes of a large model should cost one copy into the kernel, and not pass
through the event loop that keeps the learner's link alive.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import anyio
from anyio import to_thread

from learner.weights.files import version_file
from stream_rl.errors import ConfigError, LinkError
from stream_rl.link.chunks import CHUNK_BYTES, Ask, Piece, Refused, checksum, encode, read_ask
from stream_rl.link.running import running

_MAX_READERS = 64  # connections at once, a thread each; more wait to be accepted

log = logging.getLogger(__name__)


class ChunkServer:
    """Serves the versions of one run. Open one with `open_chunk_server`."""

    def __init__(self, listener: socket.socket, directory: Path, run_id: str) -> None:
        host, port = listener.getsockname()[:2]
        self.address = f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"
        self._listener = listener
        self._directory = directory
        self._run_id = run_id
        self._readers = anyio.CapacityLimiter(_MAX_READERS)
        self._connections: set[socket.socket] = set()

    async def own_wire(self) -> None:
        """Accept readers until cancelled."""
        loop = asyncio.get_running_loop()
        async with anyio.create_task_group() as tasks:
            try:
                while True:
                    async with self._readers:
                        pass  # there is room for one more
                    connection, _ = await loop.sock_accept(self._listener)
                    self._connections.add(connection)
                    tasks.start_soon(self._serve, connection)
            finally:
                for connection in self._connections:  # wakes the threads inside
                    _hang_up(connection)

    async def aclose(self) -> None:
        """Readers are not told: their connections end."""

    async def part(self, reason: str) -> None:
        """As `aclose`."""

    async def _serve(self, connection: socket.socket) -> None:
        try:
            await to_thread.run_sync(self._talk, connection, limiter=self._readers)
        finally:
            self._connections.discard(connection)
            connection.close()

    def _talk(self, connection: socket.socket) -> None:
        """Answer one reader until it leaves."""
        connection.setblocking(True)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        buffer = memoryview(bytearray(CHUNK_BYTES))
        file: BinaryIO | None = None
        version = -1
        with connection.makefile("rb") as questions:

            def read(count: int) -> bytes:
                data = questions.read(count)
                if len(data) < count:
                    raise EOFError
                return data

            try:
                while True:
                    ask = read_ask(read)
                    if ask.version != version:
                        if file is not None:
                            file.close()
                        # Held open: a version that is being pulled may be unlinked, and is still there to the end.
                        file, version = self._open(ask), ask.version
                    self._answer(connection, ask, file, buffer)
            except (EOFError, ConnectionError):
                pass  # the reader has what it wanted, or comes again
            except (LinkError, OSError) as error:
                log.warning("a reader of weights was cut off: %s", error)
            finally:
                if file is not None:
                    file.close()

    def _open(self, ask: Ask) -> BinaryIO | None:
        if ask.run_id != self._run_id:
            return None
        try:
            return version_file(self._directory, self._run_id, ask.version).open("rb", buffering=0)
        except FileNotFoundError:
            return None

    def _answer(self, connection: socket.socket, ask: Ask, file: BinaryIO | None, buffer: memoryview) -> None:
        if ask.run_id != self._run_id:
            problem = f"this learner serves run {self._run_id!r}"
        elif file is None:
            problem = "the learner keeps only the newest versions, and this one is gone"
        else:
            data = buffer[: ask.length]
            if os.preadv(file.fileno(), [data], ask.offset) == ask.length:
                piece = Piece(version=ask.version, offset=ask.offset, length=ask.length, checksum=checksum(data))
                connection.sendall(encode(piece))
                connection.sendall(data)
                return
            problem = f"the file ends before byte {ask.offset + ask.length}"
        connection.sendall(encode(Refused(version=ask.version, reason=problem)))


@asynccontextmanager
async def open_chunk_server(
    directory: Path, run_id: str, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[ChunkServer]:
    """Serve `directory`, where a `FilesPublisher` of the run writes, for the length of the block. Port 0: any free one.

    Raises `ConfigError` if the address cannot be bound, or could be reached from another machine.
    """
    if not ipaddress.ip_address(host).is_loopback:
        raise ConfigError(
            "weights.transport",
            f"{host} can be reached from other machines, and weights there need keys, which links have not yet; "
            "serve on 127.0.0.1.",
        )
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise ConfigError("weights.transport", f"cannot serve weights on {host}:{port}: {error.strerror}.") from error
    listener.setblocking(False)
    with listener:
        async with running(ChunkServer(listener, directory, run_id)) as server:
            yield server


def _hang_up(connection: socket.socket) -> None:
    with suppress(OSError):  # the reader was first
        connection.shutdown(socket.SHUT_RDWR)
