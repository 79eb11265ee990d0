"""Questions to an orchestrator over a real socket."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from stream_rl.app.control import ask, asking
from stream_rl.link.zmq_hub import ZmqHub, open_hub
from stream_rl.messages import StatusReply, StatusRequest, ToControl
from stream_rl.observe.rundir import RunDirectory
from stream_rl.ports import PeerJoined, Received


class Answering:
    """A hub whose application tells how many questions it has answered; sessions are counted."""

    def __init__(self, run: RunDirectory) -> None:
        self.sessions = 0
        self.questions = 0
        self._run = run

    async def __call__(self, *, task_status: anyio.abc.TaskStatus[ZmqHub]) -> None:
        async with open_hub() as hub:
            self._run.address.write_text(hub.address, encoding="ascii")
            task_status.started(hub)
            async for event in hub:
                match event:
                    case PeerJoined():
                        self.sessions += 1
                    case Received():
                        event.ack()
                        self.questions += 1
                        await hub.send(event.peer, StatusReply(status={"questions": self.questions}))


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path / "run")


def told(answer: ToControl | None) -> int:
    assert isinstance(answer, StatusReply)
    return int(answer.status["questions"])


async def test_many_questions_take_one_session(run: RunDirectory) -> None:
    answering = Answering(run)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            hub: ZmqHub = await tasks.start(answering)
            async with asking(run) as put:
                assert [told(await put(StatusRequest())) for _ in range(50)] == list(range(1, 51))
                assert answering.sessions == 1
                peers = hub.peers
            assert (len(peers), len(hub.peers)) == (1, 0)  # it said goodbye
            tasks.cancel_scope.cancel()


async def test_nobody_answers_when_the_run_ends_and_a_resumed_run_is_found_again(run: RunDirectory) -> None:
    first, second = Answering(run), Answering(run)
    with anyio.fail_after(30):
        async with asking(run) as put, anyio.create_task_group() as tasks:
            assert await put(StatusRequest()) is None
            hub: ZmqHub = await tasks.start(first)
            assert told(await put(StatusRequest())) == 1
            await hub.aclose()
            run.address.unlink()
            assert await put(StatusRequest()) is None
            await tasks.start(second)
            assert told(await put(StatusRequest())) == 1
            tasks.cancel_scope.cancel()
    assert (first.sessions, second.sessions) == (1, 1)


async def test_a_question_that_meets_an_ended_session_is_put_to_the_run_that_came_after_it(run: RunDirectory) -> None:
    first, second = Answering(run), Answering(run)
    with anyio.fail_after(30):
        async with asking(run) as put, anyio.create_task_group() as tasks:
            hub: ZmqHub = await tasks.start(first)
            assert told(await put(StatusRequest())) == 1
            await hub.aclose()
            await tasks.start(second)
            assert told(await put(StatusRequest())) == 1
            tasks.cancel_scope.cancel()


async def test_what_the_block_raises_leaves_as_it_is(run: RunDirectory) -> None:
    with pytest.raises(KeyError):
        async with asking(run):
            raise KeyError("the page's own")


async def test_one_question_has_a_session_of_its_own(run: RunDirectory) -> None:
    answering = Answering(run)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            await tasks.start(answering)
            assert told(await ask(run, StatusRequest())) == 1
            assert told(await ask(run, StatusRequest())) == 2
            tasks.cancel_scope.cancel()
    assert answering.sessions == 2
