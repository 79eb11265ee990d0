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

import msgspec

from envs.protocol import (
    Close,
    Deframer,
    FromWorker,
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
from stream_rl.errors import ConfigError
from stream_rl.ports import Environment

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_FAST_S = 0.001  # while calls take less, answers are gathered: each one sent costs the producer a wake-up


class Worker:
    """The episodes of one process and the socket they are driven through."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._episodes: dict[int, Environment] = {}
        self._unsent = bytearray()
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
            first: Environment | None = create(start.name, start.options, start.path)
        except ConfigError as error:
            traceback.print_exc()
            self._send(StartFailed(path=error.path, problem=error.problem, nearest=error.nearest))
            return
        self._send(Started())

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
            data = frame(Raised(call=request.call, error=f"{type(error).__name__}: {error}"[:2000]))
        self._unsent += data

    def _flush(self) -> None:
        if self._unsent:
            self._socket.sendall(self._unsent)
            self._unsent.clear()

    def _forget(self, episode: int) -> None:
        environment = self._episodes.pop(episode, None)
        if environment is None:
            return
        try:
            environment.close()
        except Exception:  # the episode is over already, so this can only be told
            traceback.print_exc()

    def _send(self, message: FromWorker) -> None:
        self._socket.sendall(frame(message))

    def _messages(self) -> Iterator[ToWorker]:
        """Messages as they come; what was answered is sent before waiting for more."""
        deframer = Deframer()
        while chunk := self._socket.recv(1 << 18):
            for body in deframer.feed(chunk):
                yield self._decoder.decode(body)
            self._flush()


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
