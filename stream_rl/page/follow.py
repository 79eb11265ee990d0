"""New records of a JSON-lines file that another process may still be writing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from stream_rl.errors import StreamRLError


class DamagedRecords(StreamRLError):
    """A whole line of a record file is no JSON object."""


class Follower:
    """Reads what was added since the last call. Blocking, one thread at a time.

    A resumed run writes its files anew without what came after its checkpoint. `generation` counts how often the file
    was found replaced or cut; what was read before then no longer holds, and reading begins again at the start.
    """

    def __init__(self, path: Path) -> None:
        """The file need not exist yet."""
        self.generation = 0
        self._path = path
        self._offset = 0
        self._line = 0
        self._identity: tuple[int, int] | None = None
        self._decoder = msgspec.json.Decoder(dict[str, Any])

    def read(self, limit: int) -> tuple[list[dict[str, Any]], bool]:
        """At most `limit` new records, and whether there may be more. A line without its end is left for later.

        Raises `DamagedRecords` naming file and line.
        """
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            self._restart(None)
            return [], False
        with file:
            status = os.fstat(file.fileno())
            identity = (status.st_dev, status.st_ino)
            if identity != self._identity or status.st_size < self._offset:
                self._restart(identity)
            file.seek(self._offset)
            records: list[dict[str, Any]] = []
            while len(records) < limit:
                line = file.readline()
                if not line.endswith(b"\n"):
                    return records, False
                records.append(self._decode(line))
                self._offset += len(line)
            return records, True

    def _decode(self, line: bytes) -> dict[str, Any]:
        self._line += 1
        try:
            return self._decoder.decode(line)
        except msgspec.DecodeError as error:
            raise DamagedRecords(f"{self._path}, line {self._line}: {error}") from None

    def _restart(self, identity: tuple[int, int] | None) -> None:
        if self._offset:
            self.generation += 1
        self._offset = self._line = 0
        self._identity = identity
