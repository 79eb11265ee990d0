"""Questions to the orchestrator of a running run: one in a session of its own, or many in one session."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from stream_rl.errors import LinkError
from stream_rl.link.codec import Decoder
from stream_rl.messages import FromControl, ToControl, ToOrchestrator
from stream_rl.observe.rundir import RunDirectory
from stream_rl.page.snapshot import Ask
from stream_rl.ports import Link

_ANSWER_S = 5.0
_decoder: Decoder[ToControl] = Decoder(ToControl)


async def ask(run: RunDirectory, question: FromControl) -> ToControl | None:
    """The answer; None when no orchestrator of this run answers any more."""
    address = _address(run)
    if address is None:
        return None
    try:
        async with _session(address) as link:
            await link.send(question)
            return await _heard(link)
    except LinkError:
        return None


@asynccontextmanager
async def asking(run: RunDirectory) -> AsyncIterator[Ask]:
    """`ask` for many questions, one at a time, in one session for the length of the block.

    The session is opened for the first question, and again for the next one after it has ended: the run may have been
    stopped and resumed meanwhile. What the block raises leaves as it is, not wrapped in a group.
    """
    send, questions = anyio.create_memory_object_stream[_Asked](0)

    async def put(question: FromControl) -> ToControl | None:
        asked = _Asked(question)
        await send.send(asked)
        await asked.answered.wait()
        return asked.answer

    failure: Exception | None = None
    async with send, questions, anyio.create_task_group() as tasks:
        tasks.start_soon(_converse, run, questions)
        try:
            yield put
        except Exception as error:
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


class _Asked:
    """A question that somebody waits with."""

    def __init__(self, question: FromControl) -> None:
        self.question = question
        self.answer: ToControl | None = None
        self.answered = anyio.Event()

    def tell(self, answer: ToControl | None) -> None:
        self.answer = answer
        self.answered.set()


async def _converse(run: RunDirectory, questions: MemoryObjectReceiveStream[_Asked]) -> None:
    """Answer questions, one session after the other, until cancelled."""
    asked: _Asked | None = None  # one that a session which had ended before could not take
    while True:
        asked = asked or await questions.receive()
        address = _address(run)
        if address is None:
            asked.tell(None)
            asked = None
        else:
            asked = await _talk(address, asked, questions)


async def _talk(address: str, asked: _Asked, questions: MemoryObjectReceiveStream[_Asked]) -> _Asked | None:
    """One session, to its end. Returns a question that came after that and was not sent."""
    try:
        async with _session(address) as link:
            await link.send(asked.question)
            while True:
                asked.tell(await _heard(link))
                asked = await questions.receive()
                try:
                    await link.send(asked.question)
                except LinkError:
                    return asked
    except LinkError:
        asked.tell(None)
        return None


def _address(run: RunDirectory) -> str | None:
    try:
        return run.address.read_text(encoding="ascii")
    except FileNotFoundError:
        return None


def _session(address: str) -> AbstractAsyncContextManager[Link[ToOrchestrator, ToControl]]:
    from stream_rl.link.limits import Limits
    from stream_rl.link.zmq_link import open_link

    limits = Limits(silence_s=_ANSWER_S, heartbeat_s=1.0)
    return open_link(address, role="control", name=f"control-{os.getpid()}", receive=_decoder, limits=limits)


async def _heard(link: Link[ToOrchestrator, ToControl]) -> ToControl:
    """The next message. Raises `LinkError` when the session ends without one."""
    async for delivery in link:
        delivery.ack()
        return delivery.message
    raise LinkError("the orchestrator said goodbye before it answered")
