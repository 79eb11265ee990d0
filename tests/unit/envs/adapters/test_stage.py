"""Programs that call a model over HTTP, stepped from outside."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import aiohttp
import anyio
import pytest

from envs.adapters.stage import Outcome, Play, stage
from stream_rl.errors import EnvironmentFailed

Chat = list[dict[str, Any]]


async def completion(address: str, messages: Chat, **more: Any) -> dict[str, Any]:
    """What a program gets that asks the model."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{address}/chat/completions", json={"model": "m", "messages": messages, **more}) as answer,
    ):
        assert answer.status == 200, await answer.text()
        found: dict[str, Any] = (await answer.json())["choices"][0]["message"]
        return found


async def adder(address: str) -> Outcome:
    """Asks until the sum is right; each wrong answer costs a quarter."""
    chat: Chat = [{"role": "user", "content": "2+3?"}]
    for wrong in range(4):
        said = await completion(address, chat)
        if said["content"] == "5":
            return Outcome(reward=1 - wrong / 4, text="right")
        chat += [said, {"role": "user", "content": "No. Again."}]
    return Outcome(reward=0.0)


@pytest.fixture
def play() -> Iterator[Play]:
    play = Play(stage())
    yield play
    play.abandon()


def test_a_program_is_stepped_to_its_end(play: Play) -> None:
    assert play.begin(adder).text == "2+3?"
    heard = play.act("4")
    assert (heard.text, heard.outcome) == ("No. Again.", None)
    heard = play.act("5")
    assert heard.outcome == Outcome(reward=0.75, text="right")
    with pytest.raises(EnvironmentFailed, match="does not wait"):
        play.act("6")


def test_plays_are_apart() -> None:
    plays = [Play(stage()) for _ in range(5)]
    for one in plays:
        one.begin(adder)
    for wrong, one in enumerate(plays[:4]):
        for _ in range(wrong):
            assert one.act("?").outcome is None
        assert one.act("5").outcome == Outcome(reward=1 - wrong / 4, text="right")
    plays[4].abandon()
    with pytest.raises(EnvironmentFailed, match="does not wait"):
        plays[4].act("5")


def test_tools_are_offered_and_called(play: Play) -> None:
    async def asks(address: str) -> Outcome:
        tool = {"type": "function", "function": {"name": "add", "parameters": {}}}
        chat: Chat = [{"role": "user", "content": "2+3?"}]
        said = await completion(address, chat, tools=[tool])
        (call,) = said["tool_calls"]
        total = sum(json.loads(call["function"]["arguments"])["numbers"])
        chat += [said, {"role": "tool", "tool_call_id": call["id"], "content": str(total)}]
        said = await completion(address, chat, tools=[tool])
        return Outcome(reward=float(said["content"] == "5"))

    assert "- add" in play.begin(asks).text
    assert (
        play.act('<tool_call>{"name": "add", "arguments": {"numbers": [2, 3]}}</tool_call>').text == "[tool result]\n5"
    )
    assert play.act("5").outcome == Outcome(reward=1.0)


def test_a_streamed_answer(play: Play) -> None:
    async def lines(content: aiohttp.StreamReader) -> AsyncIterator[str]:
        async for line in content:
            if line.strip():
                yield line.decode().removeprefix("data: ").strip()

    async def asks(address: str) -> Outcome:
        body = {"messages": [{"role": "user", "content": "2+3?"}], "stream": True}
        async with aiohttp.ClientSession() as session, session.post(f"{address}/chat/completions", json=body) as answer:
            *chunks, end = [line async for line in lines(answer.content)]
        assert end == "[DONE]"
        deltas = [json.loads(chunk)["choices"][0] for chunk in chunks]
        assert deltas[-1]["finish_reason"] == "stop"
        return Outcome(reward=1.0, text="".join(delta["delta"].get("content", "") for delta in deltas))

    play.begin(asks)
    assert play.act("five").outcome == Outcome(reward=1.0, text="five")


async def _raises(address: str) -> Outcome:
    raise RuntimeError("the roof fell in")


async def _starts_anew(address: str) -> Outcome:
    for question in ("2+3?", "3+4?"):
        await completion(address, [{"role": "user", "content": question}])
    return Outcome(reward=0.0)


def test_a_program_that_fails_or_forgets_is_an_error(play: Play) -> None:
    with pytest.raises(EnvironmentFailed, match="RuntimeError: the roof fell in"):
        play.begin(_raises)
    other = Play(stage())
    other.begin(_starts_anew)
    with pytest.raises(EnvironmentFailed, match="one growing conversation"):
        other.act("5")


def test_an_abandoned_program_is_cancelled(play: Play) -> None:
    ended: list[str] = []
    over = anyio.Event()

    async def waits(address: str) -> Outcome:
        try:
            await completion(address, [{"role": "user", "content": "?"}])
        except anyio.get_cancelled_exc_class():
            ended.append("cancelled")
            raise
        finally:
            over.set()
        return Outcome(reward=0.0)

    play.begin(waits)
    play.abandon()
    stage().start(_wait(over)).result(timeout=40)
    assert ended == ["cancelled"]


def _wait(event: anyio.Event) -> Callable[[], Any]:
    async def wait() -> None:
        await event.wait()

    return wait
