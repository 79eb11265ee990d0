"""Programs that call a model, run behind the scenes and stepped from outside.

A world is called; most agent frameworks call. The stage turns one into the other: it runs the program on an event loop
of its own thread, holds each of its model calls until the next action is known, and hands over what it asked.
"""

from __future__ import annotations

import atexit
import queue
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import cache
from typing import Any, TypeVar

import anyio
import msgspec
from anyio.from_thread import BlockingPortal

from envs.adapters.chat import ChatMessage, ChatReply, Diverged, added, opening, reply
from envs.adapters.endpoint import ModelCall, PolicyEndpoint
from stream_rl.causes import in_words
from stream_rl.errors import EnvironmentFailed

_END_S = 2.0  # for what runs on the stage when the process ends

T = TypeVar("T")


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a program ended."""

    reward: float  # as the program's own scoring has it
    text: str = ""  # last words shown to the policy


Program = Callable[[str], Awaitable[Outcome]]  # gets the address of the model it shall call


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """What the program did next: it asks on, or it ended."""

    text: str = ""  # what was said since the policy's last words
    valid: bool = True  # the last action could be read
    outcome: Outcome | None = None  # None: it waits for the next action


class _Asked:
    """One model call that waits for its answer. Lives on the stage's loop."""

    def __init__(self, call: ModelCall) -> None:
        self.call = call
        self.answered = anyio.Event()
        self.answer: ChatReply | None = None


class Play:
    """One run of one program. `begin`, then `act` until an outcome; `abandon` at any time."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._heard: queue.SimpleQueue[_Asked | Outcome | Exception] = queue.SimpleQueue()
        self._asked: _Asked | None = None
        self._seen: list[ChatMessage] = []
        self._run: Future[None] | None = None

    def begin(self, program: Program) -> Heard:
        """Start the program; returns what it first asked. Raises `EnvironmentFailed` if it fails before."""
        self._run = self._stage.start(self._perform, program)
        return self._next(valid=True)

    def act(self, action: str) -> Heard:
        """Answer the call that waits. Raises `EnvironmentFailed` when the program fails, or starts another chat."""
        if self._asked is None:
            raise EnvironmentFailed("the program does not wait for an action: it has not begun, or has ended")
        asked, self._asked = self._asked, None
        answer = reply(action, tools=bool(asked.call.tools))

        def deliver() -> None:
            asked.answer = answer
            asked.answered.set()

        self._stage.call(deliver)
        return self._next(valid=answer.valid)

    def abandon(self) -> None:
        """Cancel the program if it still runs."""
        if self._run is not None:
            self._run.cancel()
            self._run = None
        self._asked = None

    def _next(self, *, valid: bool) -> Heard:
        heard = self._heard.get()
        if isinstance(heard, Exception):
            raise EnvironmentFailed(f"the program failed: {in_words(heard)}") from heard
        if isinstance(heard, Outcome):
            return Heard(text=heard.text, valid=valid, outcome=heard)
        first = not self._seen
        messages = heard.call.messages
        try:
            text = opening(messages, heard.call.tools or ()) if first else added(self._seen, messages)
        except Diverged as error:
            self.abandon()
            raise EnvironmentFailed(f"the program does not keep to one growing conversation: {error}") from error
        self._seen, self._asked = messages, heard
        return Heard(text=text, valid=valid)

    async def _perform(self, program: Program) -> None:
        """Run the program; whatever becomes of it is heard."""

        async def ask(call: ModelCall) -> ChatReply:
            asked = _Asked(call)
            self._heard.put(asked)
            await asked.answered.wait()
            assert asked.answer is not None
            return asked.answer

        token, address = self._stage.endpoint.open(ask)
        try:
            self._heard.put(await program(address))
        except Exception as error:  # a program of somebody else: the caller is told, and only this episode is lost
            self._heard.put(error)
        finally:
            self._stage.endpoint.close(token)


class Stage:
    """An event loop in a thread of its own, with the endpoint that programs call. One for a process: see `stage`."""

    def __init__(self) -> None:
        self._ready: queue.SimpleQueue[BlockingPortal | BaseException] = queue.SimpleQueue()
        self.endpoint = PolicyEndpoint()
        # A daemon, so that a program that cannot be stopped does not keep the process alive.
        self._thread = threading.Thread(target=anyio.run, args=(self._live,), name="stage", daemon=True)
        self._thread.start()
        portal = self._ready.get()
        if isinstance(portal, BaseException):
            raise EnvironmentFailed(f"no stage for programs: {portal}") from portal
        self._portal = portal
        atexit.register(self._end)

    def call(self, function: Callable[[], None]) -> None:
        """Run a function on the stage's loop and wait until it has run."""
        self._portal.call(function)

    def start(self, function: Callable[..., Awaitable[T]], *arguments: Any) -> Future[T]:
        """Start a function on the stage's loop; cancelling the future cancels it."""
        return self._portal.start_task_soon(function, *arguments)

    def enter(self, manager: AbstractAsyncContextManager[T]) -> AbstractContextManager[T]:
        """An asynchronous context, entered and left on the stage's loop."""
        return self._portal.wrap_async_context_manager(manager)

    async def _live(self) -> None:
        try:
            async with BlockingPortal() as portal, self.endpoint:
                self._ready.put(portal)
                await portal.sleep_until_stopped()
        except OSError as error:
            self._ready.put(error)

    def _end(self) -> None:
        self._portal.start_task_soon(self._portal.stop, True)
        self._thread.join(_END_S)


@cache
def stage() -> Stage:
    """The stage of this process, set up when it is first needed. Raises `EnvironmentFailed`."""
    return Stage()
