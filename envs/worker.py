"""A worker process: many episodes of one world, one call at a time. Run as `python -m envs.worker FD`.

FD is its end of a socket pair. Calls are answered in order, each as soon as it is done, so that the pool knows which
call is running; a fast world's answers to calls that came together leave together. The worker leaves when the pool
closes its end, and dies with the pool's process.
"""

from __future__ import annotations

import ctypes
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import get_args

import msgspec

from envs.memory import bound_data, resident_bytes
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
from envs.registry import create
from stream_rl.causes import in_words
from stream_rl.errors import ConfigError, EnvironmentLost
from stream_rl.ports import Environment
from stream_rl.types import Split

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LEAP = 2  # one call may not take more than this many times the memory a worker is replaced at
_WEIGH_EVERY_S = 0.05
_FAST_S = 0.001  # while calls take less, answers are gathered: each one sent costs the producer a wake-up


class Worker:
    """The episodes of one process and the socket they are driven through."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._episodes: dict[int, Environment] = {}
        self._unsent = bytearray()
        self._memory_bytes = 0  # past this much it says `Heavy`, once; 0: never
        self._weighed = 0.0
        self._decoder = msgspec.msgpack.Decoder(ToWorker)
        self._answers = msgspec.msgpack.Decoder(FromWorker)

    def run(self) -> None:
        """Answer until the pool closes its end."""
        messages = self._messages()
        start = next(messages, None)
        if start is None:
            return
        if not isinstance(start, Start):
            raise TypeError(f"the first message must be Start, got {start!r}")
        try:
            world = create(start.name, start.options, start.path)
            counts = _count_tasks(world, start.path)
            places = _prepare(world, start.path)
        except ConfigError as error:
            if not isinstance(error.__cause__, ConfigError | None):  # the author's code failed: its lines are wanted
                traceback.print_exc()
            self._send(StartFailed(path=error.path, problem=error.problem, nearest=error.nearest))
            return
        self._send(Started(memory_bytes=resident_bytes() or 0, num_tasks=counts, max_episodes=places))
        if start.memory_bytes:
            self._memory_bytes = start.memory_bytes
            bound_data(_LEAP * start.memory_bytes)
        first: Environment | None = world

        def make() -> Environment:
            nonlocal first
            environment, first = first, None
            return environment if environment is not None else create(start.name, start.options, start.path)

        for message in messages:
            match message:
                case Reset() | Step():
                    began = time.monotonic()
                    self._answer(message, make)
                    if time.monotonic() - began > _FAST_S:
                        self._flush()
                case Close():
                    self._forget(message.episode)
                case Start():
                    raise TypeError("a worker runs one world")
        for episode in list(self._episodes):
            self._forget(episode)
        if first is not None:
            _close(first)

    def _answer(self, request: Reset | Step, make: Callable[[], Environment]) -> None:
        """Run the call and send its answer. Whatever the world's code raises costs this episode and no other."""
        answer: Observed | Stepped
        try:
            if isinstance(request, Reset):
                if request.episode not in self._episodes:
                    self._episodes[request.episode] = make()
                observation = self._episodes[request.episode].reset(request.task, request.seed)
                answer = Observed(call=request.call, observation=observation)
            else:
                environment = self._episodes.get(request.episode)
                if environment is None:
                    raise LookupError("the episode was not reset, or failed before")
                answer = Stepped(call=request.call, result=environment.step(request.action))
            data = frame(answer)
            self._answers.decode(data[4:])  # a world that returns other types is at fault here, not the worker
        except Exception as error:
            traceback.print_exc()
            self._forget(request.episode)
            told = in_words(error)[:2000]
            data = frame(Raised(call=request.call, error=told, lost=isinstance(error, EnvironmentLost)))
        self._unsent += data

    def _flush(self) -> None:
        if self._unsent:
            self._socket.sendall(self._unsent)
            self._unsent.clear()

    def _forget(self, episode: int) -> None:
        environment = self._episodes.pop(episode, None)
        if environment is not None:
            _close(environment)

    def _weigh(self) -> None:
        """Say so once when the worker holds more than it may. Asking the system takes 10 us, so not at every call."""
        now = time.monotonic()
        if not self._memory_bytes or now - self._weighed < _WEIGH_EVERY_S:
            return
        self._weighed = now
        held = resident_bytes()
        if held is not None and held > self._memory_bytes:
            self._memory_bytes = 0
            self._send(Heavy(memory_bytes=held))

    def _send(self, message: FromWorker) -> None:
        self._socket.sendall(frame(message))

    def _messages(self) -> Iterator[ToWorker]:
        """Messages as they come; what was answered is sent before waiting for more."""
        deframer = Deframer()
        while chunk := self._socket.recv(1 << 18):
            for body in deframer.feed(chunk):
                yield self._decoder.decode(body)
            self._flush()
            self._weigh()


def _count_tasks(world: Environment, path: str) -> dict[Split, int | None]:
    """Tasks of each split, for a world that counts them. Raises `ConfigError`."""
    count = getattr(world, "num_tasks", None)
    splits: tuple[Split, ...] = get_args(Split)
    try:
        return {split: count(split) for split in splits} if callable(count) else {}
    except ConfigError:
        raise
    except Exception as error:  # code of the world's author: a world that cannot be counted cannot be used
        raise ConfigError(f"{path}.options", f"its tasks cannot be counted: {in_words(error)}.") from error


def _prepare(world: Environment, path: str) -> int:
    """Episodes that may be open at once, of a world that has something to start first. Raises `ConfigError`."""
    prepare = getattr(world, "prepare", None)
    try:
        return int(prepare()) if callable(prepare) else 0
    except ConfigError:
        raise
    except Exception as error:  # code of the world's author: a world that cannot be prepared cannot be used
        raise ConfigError(f"{path}.options", f"it cannot be prepared: {in_words(error)}.") from error


def _close(environment: Environment) -> None:
    try:
        environment.close()
    except Exception:  # the episode is over already, so this can only be told
        traceback.print_exc()


def _die_with_parent() -> None:
    """End of file on the socket is seen between calls only; this also ends a worker inside a call that hangs.

    "Parent" is the thread that spawned the worker, which is that of the event loop the pool lives in.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    """Entry point of the worker process."""
    _die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group; the pool decides
    with socket.socket(fileno=int(sys.argv[1])) as sock:
        sock.set_inheritable(False)
        sock.setblocking(True)
        try:
            Worker(sock).run()
        except (BrokenPipeError, ConnectionResetError):
            print("the pool is gone", file=sys.stderr)  # noqa: T201  (a worker's log is its standard error)


if __name__ == "__main__":
    main()
