"""Servers of this process, forked from one that has loaded AppWorld; they end with this process, however it ends."""

from __future__ import annotations

import logging
import os
import selectors
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from envs.appworld import zygote
from envs.appworld.client import Client
from stream_rl.errors import EnvironmentFailed, EnvironmentLost

log = logging.getLogger(__name__)

_START_S = 110.0  # a busy machine needs several times the usual ten seconds
_ANSWER_S = 5.0  # a fork or a kill takes milliseconds
_GRACE_S = 5.0
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR")  # agents run code there: nothing else of ours is theirs to read


class PrivateFleet:
    """Implements `envs.appworld.fleet.Fleet`: a new server for every episode.

    python: interpreter that has AppWorld
    data: folder with `datasets` and `tasks`, which is only read
    task: id of one that is there, to warm up with
    servers: most of them at once
    memory_mib: data a server may hold; an agent's code gets a MemoryError past it. 0: no limit
    """

    def __init__(self, *, python: Path, data: Path, task: str, servers: int, memory_mib: int) -> None:
        self._python = python
        self._data = data
        self._task = task
        self._servers = servers
        self._memory_mib = memory_mib
        self._zygote: Zygote | None = None
        self._open = 0

    def prepare(self) -> int:
        """Load AppWorld, which takes ten seconds. Raises `EnvironmentFailed`."""
        self._warm(_START_S)
        return self._servers

    def lease(self, timeout_s: float) -> PrivateServer:
        """A fresh server. Raises `EnvironmentFailed` when all are out, `EnvironmentLost` when none can be made now."""
        if self._open >= self._servers:
            raise EnvironmentFailed(f"appworld: all {self._servers} servers of this process hold an episode")
        source = self._warm(timeout_s)
        pid, port = source.fork()
        self._open += 1
        return PrivateServer(self, source, pid, port)

    def close(self) -> None:
        """End all servers."""
        source, self._zygote = self._zygote, None
        if source is not None:
            source.close()

    def returned(self) -> None:
        """A server has ended."""
        self._open -= 1

    def _warm(self, timeout_s: float) -> Zygote:
        """The zygote, or another one where it has died, once it is ready."""
        if self._zygote is not None and not self._zygote.alive:
            log.warning("appworld: the process that servers are forked from has ended; it is started anew")
            self.close()
        if self._zygote is None:
            self._zygote = Zygote(self._python, self._data, self._task, self._memory_mib)
        self._zygote.wait_ready(timeout_s)
        return self._zygote


class PrivateServer:
    """Implements `envs.appworld.fleet.Lease`."""

    def __init__(self, fleet: PrivateFleet, source: Zygote, pid: int, port: int) -> None:
        self._fleet = fleet
        self._source = source
        self._ended = False
        self.pid = pid
        self.client = Client(f"http://127.0.0.1:{port}")
        self.experiment = f"server-{pid}"

    def end(self) -> str:
        """Kill it. A signal 9 is this kill, or of a server that was gone the system's for want of memory."""
        if self._ended:
            return ""
        self._ended = True
        self._fleet.returned()
        try:
            code = self._source.end(self.pid)
        except EnvironmentLost as error:  # then it has died with its zygote
            return str(error)
        return f"it was killed by signal {-code}" if code < 0 else f"it ended with exit code {code}"


class Zygote:
    """One life of the process that servers are forked from, and of the folder they write to."""

    def __init__(self, python: Path, data: Path, task: str, memory_mib: int) -> None:
        """Start it, without waiting. Raises `EnvironmentFailed`."""
        self._root = Path(tempfile.mkdtemp(prefix="stream-rl-appworld-"))
        (self._root / "data").symlink_to(data.resolve(), target_is_directory=True)
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        environment |= {
            "HOME": str(self._root),
            "APPWORLD_ROOT": str(self._root),
            "APPWORLD_CACHE": str(self._root / "cache"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
        }
        try:
            self._process = subprocess.Popen(
                [str(python), "-P", zygote.__file__, task, str(memory_mib)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
                cwd=self._root,
                start_new_session=True,  # Ctrl-C is for the pool to handle
            )
        except OSError as error:
            shutil.rmtree(self._root, ignore_errors=True)
            raise EnvironmentFailed(f"appworld: {python} cannot be run: {error}") from None
        self._ready = False
        self._unread = b""

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    def wait_ready(self, timeout_s: float) -> None:
        """Until servers can be forked. Raises `EnvironmentLost` if not within `timeout_s`, and that may be asked again;
        `EnvironmentFailed` if never.
        """
        if self._ready:
            return
        line = self._line(timeout_s)
        if line is None:
            raise EnvironmentLost(f"appworld: servers are still being started, after {timeout_s:.3g} s more")
        kind, _, why = line.partition(" ")
        if kind != "ready":
            self.close()
            raise EnvironmentFailed(f"appworld: its servers cannot be started: {why or line}")
        self._ready = True

    def fork(self) -> tuple[int, int]:
        """Process id and port of a new server. Raises `EnvironmentLost`."""
        _, pid, port = self._ask("fork", "forked", 3)
        return int(pid), int(port)

    def end(self, pid: int) -> int:
        """Kill a server; its exit code, or minus the signal. Raises `EnvironmentLost`."""
        _, _, code = self._ask(f"end {pid}", "ended", 3)
        return int(code)

    def close(self) -> None:
        """End it with its servers, and remove their files."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:  # a request that it did not live to read
                    log.debug("appworld: the zygote had ended before its last request")
        try:
            self._process.wait(_GRACE_S if self._ready else 0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._root, ignore_errors=True)

    def _ask(self, request: str, kind: str, words: int) -> list[str]:
        assert self._process.stdin is not None
        if self._process.stdin.closed:
            raise EnvironmentLost("appworld: the process that servers are forked from was stopped")
        try:
            self._process.stdin.write(f"{request}\n".encode())
            self._process.stdin.flush()
            answer = (self._line(_ANSWER_S) or "no answer").split()
        except BrokenPipeError:
            answer = ["nobody", "there"]
        if answer[0] != kind or len(answer) != words:
            self.close()
            raise EnvironmentLost(
                f"appworld: the process that servers are forked from is of no use any more ({request}: "
                f"{' '.join(answer)}; exit code {self._process.returncode})"
            )
        return answer

    def _line(self, timeout_s: float) -> str | None:
        """The next line, None when there is none in time."""
        assert self._process.stdout is not None
        until = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                if not selector.select(max(0.0, until - time.monotonic())):
                    return None
                chunk = os.read(self._process.stdout.fileno(), 1 << 12)
                if not chunk:
                    return f"ended exit code {self._process.wait()}; its last words are in the log"
                self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode(errors="replace")
