"""Starts `stream-rl` as a user would and looks at what it leaves behind."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

SMALL = (
    "policy.init=random-tiny",
    "groups.candidates=4",
    "groups.per_update=2",
    "groups.size=2",
    "generate.max_turns=3",
    "generate.concurrency=16",
    "eval.tasks=4",
    "eval.rollouts=1",
    "learner.checkpoint_every=0",
)


class Up:
    """A running `stream-rl up --json`, its events as they come. What a failed test leaves, `conftest.py` ends."""

    started: ClassVar[list[Up]] = []

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.events: list[dict[str, Any]] = []
        self._queue: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._errors = folder / "up.stderr"
        with self._errors.open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "stream_rl.cli", "up", "--json", *arguments],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                start_new_session=True,
            )
        threading.Thread(target=self._read, daemon=True).start()
        Up.started.append(self)

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self._queue.put(json.loads(line))
        self._queue.put(None)

    def until(self, wanted: Callable[[dict[str, Any]], bool], *, within_s: float = 200.0) -> dict[str, Any]:
        """Wait for an event. Fails with what was seen when it does not come."""
        deadline = time.monotonic() + within_s
        while True:
            try:
                event = self._queue.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"not within {within_s} s; seen: {self.events[-5:]}") from None
            if event is None:
                raise AssertionError(f"it ended ({self.process.wait()}): {self.events[-5:]} {self.stderr}")
            self.events.append(event)
            if wanted(event):
                return event

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def end(self, *, within_s: float = 200.0) -> int:
        """Its exit code, once it has ended."""
        try:
            code = self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise AssertionError(f"still running after {within_s} s; seen: {self.events[-5:]}") from None
        while (event := self._queue.get(timeout=60)) is not None:
            self.events.append(event)
        return code

    def succeed(self, *, within_s: float = 200.0) -> None:
        """It ends with exit code 0; otherwise fail with what went wrong."""
        code = self.end(within_s=within_s)
        wrong = [e for e in self.events if e["type"] in ("failed", "failing", "role_restarted")]
        assert code == 0, f"exit code {code}: {wrong or self.events[-3:]} {self.stderr}"

    @property
    def stderr(self) -> str:
        """What it wrote there so far."""
        return self._errors.read_text(encoding="utf-8", errors="replace")

    def kill(self) -> None:
        """kill -9, of this process only."""
        self.process.kill()
        self.process.wait()


def processes_of(folder: Path) -> list[str]:
    """Command lines of live processes that work in `folder` or were told of it."""
    return [text for _, text in _processes(folder)]


def pid_of(folder: Path, words: str) -> int:
    """The one process of `folder` whose command line holds `words`."""
    (pid,) = pids_of(folder, words)
    return pid


def pids_of(folder: Path, words: str) -> list[int]:
    """All processes of `folder` whose command line holds `words`."""
    return [pid for pid, text in _processes(folder) if words in text]


def _processes(folder: Path) -> Iterator[tuple[int, str]]:
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            cwd = os.readlink(entry / "cwd")
            dead = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
        except OSError:
            continue
        if not dead and (str(folder) in words or cwd.startswith(str(folder))):
            yield int(entry.name), words


def gone(folder: Path, *, within_s: float = 40.0) -> list[str]:
    """What is still alive after giving it a moment; empty is what a test wants."""
    deadline = time.monotonic() + within_s
    while (left := processes_of(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def run(folder: Path, *arguments: str, within_s: float = 150.0) -> subprocess.CompletedProcess[str]:
    """One short command."""
    return subprocess.run(
        [sys.executable, "-m", "stream_rl.cli", *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
    )


def overrides(*more: str) -> list[str]:
    """`--set` arguments for a run that takes seconds."""
    return [part for pair in (*SMALL, *more) for part in ("--set", pair)]
