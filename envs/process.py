"""One life of one worker process, seen from the pool: spawn, calls, deadline, death with a cause."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

import anyio
import msgspec
from anyio.abc import Process, SocketStream

from envs.protocol import (
    Close,
    Deframer,
    FromWorker,
    Heavy,
    Observed,
    Raised,
    Reset,
    Start,
    Started,
    StartFailed,
    Step,
    Stepped,
    ToWorker,
    frame,
)
from stream_rl.config import EnvironmentConfig
from stream_rl.errors import ConfigError, EnvironmentFailed, EnvironmentLost
from stream_rl.types import Observation, Split, StepResult, Task

_GRACE_S = 2.0  # for a worker to leave by itself once its socket is closed
_LATE_S = 0.05
_CHUNK_BYTES = 1 << 18
_STANDARD_ERROR = 2
_MIB = 1 << 20

A = TypeVar("A")


class _Call(Generic[A]):
    """A request that was sent and is not answered."""

    __slots__ = ("answer", "done", "error", "kind", "task")

    def __init__(self, kind: type[A], task: Task | None) -> None:
        self.kind = kind
        self.task = task
        self.done = anyio.Event()
        self.answer: A | None = None
        self.error = EnvironmentFailed()

    def succeed(self, answer: object) -> None:
        if not isinstance(answer, self.kind):
            raise ValueError(f"{type(answer).__name__} where {self.kind.__name__} is expected")
        self.answer = answer
        self.done.set()

    def fail(self, error: EnvironmentFailed) -> None:
        self.error = error
        self.done.set()


class WorkerProcess:
    """A live worker and the calls it has not answered.

    The worker answers in order, so the oldest call is the one that runs, since the last answer came: the deadline
    is on that call alone, however many wait behind it.
    """

    @classmethod
    async def start(cls, config: EnvironmentConfig, path: str, label: str, deadline_s: float) -> WorkerProcess:
        """Spawn a worker and wait until its world can be made.

        Raises `ConfigError` if it cannot, `EnvironmentFailed` if the process dies or is silent for `deadline_s`.
        """
        ours, theirs = socket.socketpair()
        try:
            # Cancelled halfway, there would be a process that nobody knows of, and so nobody ends.
            with theirs, anyio.CancelScope(shield=True):
                process = await anyio.open_process(
                    [sys.executable, "-m", "envs.worker", str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=_STANDARD_ERROR,
                    stderr=None,
                    pass_fds=[theirs.fileno()],
                    # What can be imported here can be imported there.
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
                )
                ours.setblocking(False)
                stream = await SocketStream.from_socket(ours)
        except BaseException as error:
            ours.close()
            if isinstance(error, OSError):
                raise EnvironmentFailed(f"{label} cannot be started: {error}") from error
            raise
        worker = cls(process, stream, label, config.step_deadline_s, config.worker_memory_mib * _MIB)
        try:
            await worker._shake_hands(config, path, deadline_s)
        except BaseException:
            await worker.end()
            raise
        return worker

    def __init__(
        self, process: Process, stream: SocketStream, label: str, deadline_s: float, memory_bytes: int
    ) -> None:
        self.pid = process.pid
        self.episodes = 0  # open sessions, for the choice of the least loaded
        self.max_episodes = 0  # places for them, as the world said at its start; 0: any number
        self.num_tasks: dict[Split, int | None] = {}  # as the world counted them at its start
        self.culprit: Task | None = None  # whose call ran when the worker ended before its time
        self._process = process
        self._stream = stream
        self._label = label
        self._deadline_s = deadline_s
        self._memory_bytes = memory_bytes  # 0: no limit
        self._held_bytes = 0  # what it said it holds, once that was too much
        self._heavy = anyio.Event()
        self._vacant = anyio.Event()
        self._drained = False
        self._tasks: dict[int, Task] = {}  # of each open episode
        self._numbers = itertools.count()
        self._calls: dict[int, _Call[Any]] = {}
        self._outbox: list[bytes] = []
        self._outgoing = anyio.Event()
        self._busy = anyio.Event()
        self._progress = 0.0  # when the oldest call began to run
        self._cause: str | None = None
        self._ended = anyio.Event()
        self._deframer = Deframer()
        self._decoder = msgspec.msgpack.Decoder(FromWorker)

    @property
    def alive(self) -> bool:
        """Whether calls may be made."""
        return self._cause is None

    @property
    def accepting(self) -> bool:
        """Whether new episodes may begin: it is alive, has a place, and holds no more memory than it may."""
        return self.alive and not self.full and not self._heavy.is_set()

    @property
    def full(self) -> bool:
        """Whether all its places are taken."""
        return 0 < self.max_episodes <= self.episodes

    async def reset(self, episode: int, task: Task, seed: int) -> Observation:
        """Begin an episode. Raises `EnvironmentFailed`; `EnvironmentLost` when the worker has ended."""
        self._tasks[episode] = task
        number = next(self._numbers)
        return await self._call(number, Reset(call=number, episode=episode, task=task, seed=seed), Observation, task)

    async def step(self, episode: int, action: str) -> StepResult:
        """Act in an episode. Raises `EnvironmentFailed`; `EnvironmentLost` when the worker has ended."""
        number = next(self._numbers)
        request = Step(call=number, episode=episode, action=action)
        return await self._call(number, request, StepResult, self._tasks.get(episode))

    def enter(self) -> None:
        """An episode is given a place here."""
        self.episodes += 1

    def leave(self, episode: int) -> None:
        """The episode is over: the worker may forget it."""
        self.episodes -= 1
        self._tasks.pop(episode, None)
        if self.alive:
            self._post(frame(Close(episode=episode)))
        if not self.episodes:
            self._vacant.set()

    async def serve(self, on_loss: Callable[[str], None]) -> str:
        """Carry calls and answers until the worker is no more; returns why.

        on_loss: told the cause before any call fails of it, so that who plays the episode again finds the task blamed
        """
        async with anyio.create_task_group() as group:

            async def until_over(part: Callable[[], Awaitable[str]]) -> None:
                self._fail(await part(), on_loss)
                group.cancel_scope.cancel()

            for part in (self._read, self._write, self._watch_deadline, self._drain, self._exit):
                group.start_soon(until_over, part)
        assert self._cause is not None
        return self._cause

    async def end(self) -> None:
        """Close the socket, wait for the process a moment, kill it if need be. Leaves no process behind."""
        killed = self._cause is not None and not self._drained
        self._fail(f"{self._label} was stopped")
        with anyio.CancelScope(shield=True):
            await self._stream.aclose()
            if not killed:
                with anyio.move_on_after(_GRACE_S):
                    await self._process.wait()
            if self._process.returncode is None:
                self._process.kill()
            await self._process.wait()

    async def _shake_hands(self, config: EnvironmentConfig, path: str, deadline_s: float) -> None:
        options = {**config.options, "data": config.data} if config.data else config.options
        start = frame(Start(name=config.name, options=options, path=path, memory_bytes=self._memory_bytes))
        answer: FromWorker | None = None
        with anyio.move_on_after(deadline_s):
            try:
                await self._stream.send(start)
                while answer is None:
                    chunk = await self._stream.receive(_CHUNK_BYTES)
                    answer = next((self._decoder.decode(body) for body in self._deframer.feed(chunk)), None)
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                raise EnvironmentFailed(f"{await self._lost()} before it was ready") from None
            except (msgspec.DecodeError, ValueError) as error:
                self._fail(f"{self._label} was killed: what it sent is not a message ({error})")
                raise EnvironmentFailed(
                    f"{self._label}: what it sent at its start is not a message ({error})"
                ) from None
        if answer is None:
            self._fail(f"{self._label} was not ready after {deadline_s:g} s")
            raise EnvironmentFailed(f"{self._label} was not ready after {deadline_s:g} s")
        if isinstance(answer, StartFailed):
            raise ConfigError(answer.path, answer.problem, nearest=answer.nearest)
        if not isinstance(answer, Started):
            raise EnvironmentFailed(f"{self._label} answered its start with {type(answer).__name__}")
        if 0 < self._memory_bytes < answer.memory_bytes:
            raise ConfigError(
                f"{path}.worker_memory_mib",
                f"{config.worker_memory_mib} is less than the {answer.memory_bytes // _MIB} MiB a worker of "
                f"{config.name} holds before its first episode; give it more, or 0 for no limit.",
            )
        self.num_tasks = answer.num_tasks
        self.max_episodes = answer.max_episodes

    async def _call(self, number: int, request: ToWorker, kind: type[A], task: Task | None) -> A:
        if self._cause is not None:
            raise EnvironmentLost(self._cause)
        try:
            data = frame(request)
        except ValueError as error:
            raise EnvironmentFailed(f"{self._label}: {error}") from None
        if not self._calls:
            self._progress = anyio.current_time()
            self._busy.set()
        call = _Call(kind, task)
        self._calls[number] = call
        self._post(data)
        await call.done.wait()
        if call.answer is None:
            raise call.error
        return call.answer

    def _post(self, data: bytes) -> None:
        self._outbox.append(data)
        self._outgoing.set()

    async def _write(self) -> str:
        while True:
            if not self._outbox:
                self._outgoing = anyio.Event()
                await self._outgoing.wait()
            data = b"".join(self._outbox)
            self._outbox.clear()
            try:
                await self._stream.send(data)
            except anyio.BrokenResourceError:
                return await self._lost()

    async def _read(self) -> str:
        while True:
            try:
                chunk = await self._stream.receive(_CHUNK_BYTES)
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return await self._lost()
            try:
                for body in self._deframer.feed(chunk):
                    self._take(self._decoder.decode(body))
            except (msgspec.DecodeError, ValueError) as error:
                return f"{self._label} was killed: what it sent is not a message ({error})"

    def _take(self, message: FromWorker) -> None:
        if isinstance(message, Started | StartFailed):
            raise ValueError(f"{type(message).__name__} out of turn")
        if isinstance(message, Heavy):
            self._held_bytes = message.memory_bytes
            self._heavy.set()
            return
        call = self._calls.pop(message.call, None)
        if call is None:
            raise ValueError(f"an answer to call {message.call}, which is not open")
        self._progress = anyio.current_time()
        match message:
            case Observed():
                call.succeed(message.observation)
            case Stepped():
                call.succeed(message.result)
            case Raised():
                kind = EnvironmentLost if message.lost else EnvironmentFailed
                call.fail(kind(f"{self._label}: the environment raised {message.error}"))

    async def _watch_deadline(self) -> str:
        while True:
            if not self._calls:
                self._busy = anyio.Event()
                await self._busy.wait()
            # An event loop that was late itself gets the time to read an answer that is already there.
            for extra_s in (0.0, _LATE_S):
                with anyio.move_on_at(self._progress + self._deadline_s + extra_s):
                    await self._ended.wait()
            if self._calls and anyio.current_time() >= self._progress + self._deadline_s + _LATE_S:
                return f"{self._label} was killed: a call took longer than {self._deadline_s:g} s"

    async def _drain(self) -> str:
        """A worker that holds too much memory takes no new episode and ends once its last one has."""
        await self._heavy.wait()
        while self.episodes:
            self._vacant = anyio.Event()
            await self._vacant.wait()
        self._drained = True
        return (
            f"{self._label} was ended between episodes: it held {self._held_bytes // _MIB} MiB, more than the "
            f"{self._memory_bytes // _MIB} of worker_memory_mib"
        )

    async def _exit(self) -> str:
        """How the process ended, once it has."""
        code = await self._process.wait()
        if code < 0:
            return f"{self._label} was killed by signal {-code} ({_signal_name(-code)})"
        return f"{self._label} ended with exit code {code}"

    async def _lost(self) -> str:
        """Why the socket is closed: normally because the process ended, which is seen a moment later."""
        with anyio.move_on_after(_GRACE_S):
            return await self._exit()
        return f"{self._label} was killed: it closed its socket"

    def _fail(self, cause: str, on_loss: Callable[[str], None] | None = None) -> None:
        """Every open call fails with the first cause given. The oldest of them is the one that ran."""
        if self._cause is not None:
            return
        self._cause = cause
        if not self._drained:
            self.culprit = next((call.task for call in self._calls.values()), None)
        self._ended.set()
        if on_loss is not None:
            on_loss(cause)
        for call in self._calls.values():
            call.fail(EnvironmentLost(cause))
        self._calls.clear()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
