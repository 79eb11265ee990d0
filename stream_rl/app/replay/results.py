"""The verdicts of one replay, in a file of their own beside the run's ledger."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from types import TracebackType

from stream_rl.link.codec import Decoder, pack, unpack
from stream_rl.types import Verdict


class ReplayResults:
    """SQLite, one table like the ledger's. Blocking calls, one thread at a time. A context manager.

    It is written under a temporary name and takes its own once it is complete: a file with its name holds one whole
    replay, whatever became of later ones.
    """

    def __init__(self, path: Path) -> None:
        """Begin a file that will be `path`."""
        self._path = path
        self._temporary = path.with_suffix(".unfinished")
        self._temporary.unlink(missing_ok=True)
        self._db = sqlite3.connect(self._temporary, isolation_level=None, check_same_thread=False)
        # What is lost with this file is made again from the answers in the cache.
        self._db.execute("PRAGMA journal_mode=MEMORY")
        self._db.execute("PRAGMA synchronous=OFF")
        self._db.execute(
            "CREATE TABLE verdicts (trajectory_id TEXT PRIMARY KEY, group_id TEXT NOT NULL, record BLOB NOT NULL)"
        )
        self._db.execute("CREATE INDEX verdicts_by_group ON verdicts (group_id)")

    def __enter__(self) -> ReplayResults:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._db.close()
        self._temporary.unlink(missing_ok=True)

    def add(self, group_id: str, verdict: Verdict) -> None:
        """Keep one verdict."""
        self._db.execute("INSERT INTO verdicts VALUES (?, ?, ?)", (verdict.trajectory_id, group_id, pack(verdict)))

    def verdicts(self, group_id: str) -> list[Verdict]:
        """The new verdicts on one group's rollouts."""
        decoder: Decoder[Verdict] = Decoder(Verdict)
        rows = self._db.execute("SELECT record FROM verdicts WHERE group_id = ?", (group_id,)).fetchall()
        return [decoder.decode(unpack(blob)) for (blob,) in rows]

    def finish(self) -> Path:
        """Give the file its name."""
        self._db.close()
        os.replace(self._temporary, self._path)
        return self._path
