"""Pulling one file from the learner, in a thread: plain sockets, one copy in and one copy out."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from stream_rl.errors import LinkError, WeightsRejected
from stream_rl.link.chunks import CHUNK_BYTES, Ask, Download, Refused, checksum, encode, read_answer
from stream_rl.types import WeightsManifest

SILENCE_S = 5.0  # nothing came for this long: the connection is made again
_PAUSE_S = 0.2  # before it is made again


class Pull:
    """One version's file on its way to `target`. `run` blocks; `stop` may come from another thread."""

    def __init__(self, manifest: WeightsManifest, target: Path, *, silence_s: float = SILENCE_S) -> None:
        self._manifest = manifest
        self._target = target
        self._silence_s = silence_s
        self._connection: socket.socket | None = None
        self._stopped = threading.Event()

    def run(self) -> None:
        """Pull it all; the file appears by renaming, complete. Raises `WeightsRejected`."""
        unfinished = self._target.with_suffix(".safetensors.partial")
        try:
            self._target.parent.mkdir(parents=True, exist_ok=True)
            with unfinished.open("wb", buffering=0) as file:
                file.truncate(self._manifest.num_bytes)
                self._pull(file.fileno())
            unfinished.rename(self._target)
        except (LinkError, OSError, ValueError) as error:
            raise WeightsRejected(
                f"version {self._manifest.version} could not be pulled from the learner at "
                f"{self._manifest.address!r}: {error}"
            ) from error
        finally:
            unfinished.unlink(missing_ok=True)

    def stop(self) -> None:
        """Wake `run`, which then fails. Without effect once it has ended."""
        self._stopped.set()
        connection = self._connection
        if connection is not None:
            with suppress(OSError):  # it is closed already
                connection.shutdown(socket.SHUT_RDWR)

    def _pull(self, file: int) -> None:
        parts = urlsplit(self._manifest.address)
        if parts.scheme != "tcp" or not parts.hostname or not parts.port:
            raise LinkError("expected an address tcp://HOST:PORT")
        download = Download(self._manifest.num_bytes)
        while not download.done:
            try:
                with socket.create_connection((parts.hostname, parts.port), timeout=self._silence_s) as connection:
                    self._connection = connection
                    if self._stopped.is_set():
                        raise EOFError
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._collect(connection, download, file)
            except (TimeoutError, EOFError, ConnectionError) as error:
                if not self._stopped.is_set():
                    download.silent()  # raises when it has been so too often
                if self._stopped.wait(_PAUSE_S):
                    raise LinkError("stopped") from error

    def _collect(self, connection: socket.socket, download: Download, file: int) -> None:
        """Ask ahead, take what comes, until everything is here or the connection ends."""
        manifest = self._manifest
        buffer = memoryview(bytearray(CHUNK_BYTES))

        def fill(view: memoryview) -> None:
            while view:
                count = connection.recv_into(view)
                if not count:
                    raise EOFError("the learner ended the connection")
                view = view[count:]

        def read(count: int) -> bytes:
            fill(buffer[:count])
            return bytes(buffer[:count])

        while not download.done:
            asks = (
                Ask(run_id=manifest.run_id, version=manifest.version, offset=offset, length=length)
                for offset, length in download.ask()
            )
            connection.sendall(b"".join(map(encode, asks)))
            answer = read_answer(read)
            if answer.version != manifest.version:
                raise LinkError(f"asked for version {manifest.version}, was sent version {answer.version}")
            if isinstance(answer, Refused):
                raise LinkError(answer.reason)
            data = buffer[: answer.length]
            fill(data)
            if not download.wants(answer.offset, answer.length):
                continue
            if checksum(data) != answer.checksum:
                download.damaged(answer.offset)
                continue
            if os.pwrite(file, data, answer.offset) != answer.length:
                raise LinkError(f"the disk took only part of the piece at byte {answer.offset}")
            download.arrived(answer.offset)
