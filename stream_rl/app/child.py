"""What every role process does first: its board pipe, its lifeline, its signals, and its last words.

A role's original stdout is a pipe to the supervisor that carries one JSON object a line. Libraries print to stdout as
they like, so the descriptor is moved away first and stdout becomes the role's log.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.abc

from stream_rl.causes import cause, in_words
from stream_rl.errors import StreamRLError
from stream_rl.machine_faults import machine_fault

_LAST_EVENTS_S = 5.0  # for the last events to be read
_GRACE_S = 20.0  # between losing the supervisor and leaving for good


class BoardPipe:
    """Writes board events to the supervisor, from a thread: a terminal that is held up must not hold up a role.

    A supervisor that is gone is noticed by the lifeline, not here.
    """

    def __init__(self) -> None:
        self._file = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
        os.dup2(2, 1)
        sys.stdout = sys.stderr
        self._events: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write, name="board", daemon=True)
        self._writer.start()

    def __call__(self, event: dict[str, Any]) -> None:
        """Send one event."""
        self._events.put(json.dumps(event) + "\n")

    def close(self) -> None:
        """Give what is queued a moment to leave."""
        self._events.put(None)
        self._writer.join(_LAST_EVENTS_S)

    def _write(self) -> None:
        while (line := self._events.get()) is not None:
            try:
                self._file.write(line)
            except BrokenPipeError:
                print(f"event without a supervisor: {line}", file=sys.stderr)  # noqa: T201


def run_role(main: Callable[[BoardPipe, anyio.Event], Awaitable[None]]) -> int:
    """Run a role's coroutine until it ends or SIGTERM sets its stop event. Returns the process's exit code."""
    board = BoardPipe()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor decides what Ctrl-C means
    threading.Thread(target=_watch_lifeline, name="lifeline", daemon=True).start()

    async def serve() -> None:
        stop = anyio.Event()

        async def watch(task_status: anyio.abc.TaskStatus[None]) -> None:
            with anyio.open_signal_receiver(signal.SIGTERM) as signals:
                task_status.started()
                async for _ in signals:
                    stop.set()

        async with anyio.create_task_group() as tasks:
            await tasks.start(watch)
            await main(board, stop)
            tasks.cancel_scope.cancel()

    try:
        anyio.run(serve, backend_options={"use_uvloop": True})  # asyncio, with a loop that takes half the time
    except BaseException as error:
        return last_words(board, error)
    finally:
        board.close()
    return 0


async def until(stop: anyio.Event, work: Callable[..., Awaitable[None]], *arguments: object) -> None:
    """Do `work(*arguments)` to its end, or cancel it once `stop` is set."""
    async with anyio.create_task_group() as tasks:

        async def cancel() -> None:
            await stop.wait()
            tasks.cancel_scope.cancel()

        tasks.start_soon(cancel)
        await work(*arguments)
        tasks.cancel_scope.cancel()


def last_words(board: Callable[[dict[str, Any]], None], error: BaseException) -> int:
    """Tell the supervisor why this role ends: one sentence for a known error, the log for a bug."""
    traceback.print_exception(error)
    told = cause(error)
    exit_code = told.exit_code if isinstance(told, StreamRLError) else 1
    board({"type": "failed", "error": machine_fault(told) or in_words(told), "exit_code": exit_code})
    return exit_code


def _watch_lifeline() -> None:
    """The supervisor holds the other end of stdin. When it is gone, even by kill -9, nobody needs this process."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_S)
    os.killpg(0, signal.SIGKILL)  # and what this role has started: it leads a session of its own
