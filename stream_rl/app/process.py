"""One role as a child process: started in its own session, heard through its board pipe, stopped in order."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.abc


class RoleProcess:
    """A running `stream-rl role ...`. Its stderr goes to its log file, its stdout is the board pipe."""

    def __init__(self, name: str, process: anyio.abc.Process, log: Path) -> None:
        self.name = name
        self.log = log
        self._process = process

    @classmethod
    async def start(
        cls, name: str, arguments: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None
    ) -> RoleProcess:
        """Spawn `python -m stream_rl.cli role ARGUMENTS`."""
        # Cancelled halfway, there would be a process that nobody knows of, and so nobody ends.
        with log.open("ab") as stderr, anyio.CancelScope(shield=True):
            process = await anyio.open_process(
                [sys.executable, "-m", "stream_rl.cli", "role", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        return cls(name, process, log)

    @property
    def returncode(self) -> int | None:
        """Exit code, or None while it runs."""
        return self._process.returncode

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """Its board events until it closes the pipe."""
        assert self._process.stdout is not None
        buffer = b""
        async for chunk in self._process.stdout:
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                yield json.loads(line)

    async def wait(self) -> int:
        """Its exit code, once it has ended; a negative one names the signal."""
        return await self._process.wait()

    def terminate(self) -> None:
        """Ask it to stop in order."""
        self._signal(signal.SIGTERM, group=False)

    def kill(self) -> None:
        """End it and everything it started, now."""
        self._signal(signal.SIGKILL, group=True)

    def _signal(self, number: signal.Signals, *, group: bool) -> None:
        try:
            if group:
                os.killpg(self._process.pid, number)
            elif self._process.returncode is None:
                self._process.send_signal(number)
        except ProcessLookupError:
            return  # it is gone already, which is what was wanted

    async def aclose(self) -> None:
        """Release the pipes."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                await stream.aclose()

    def last_words(self, lines: int = 12) -> str:
        """The end of its log, for an error message."""
        try:
            text = self.log.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return "(no log)"
        return "\n".join(text.strip().splitlines()[-lines:])
