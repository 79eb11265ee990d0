"""vLLM servers that people attach and detach while a run goes on."""

from __future__ import annotations

from pathlib import Path

from stream_rl.link.codec import Decoder
from stream_rl.link.memory import MemoryHub
from stream_rl.messages import (
    AttachGenerator,
    DetachGenerator,
    FromControl,
    GeneratorsReply,
    ListGenerators,
    ToControl,
)
from tests.unit.orchestrator.test_service import World, _config

A, B = "http://a:8000", "http://b:8000"


async def _talk(world: World, questions: list[FromControl]) -> list[GeneratorsReply]:
    replies: list[GeneratorsReply] = []

    async def control(hub: MemoryHub) -> None:
        receive: Decoder[ToControl] = Decoder(ToControl)
        async with hub.connect(role="control", name="me", receive=receive) as link:
            for question in questions:
                await link.send(question)
            async for delivery in link:
                delivery.ack()
                assert isinstance(delivery.message, GeneratorsReply)
                replies.append(delivery.message)
                if len(replies) == len(questions):
                    return

    world.controls.append(control)
    await world.play()
    return replies


def _told(world: World) -> list[tuple[str, object]]:
    """What the supervisor was asked to do."""
    return [
        (event["type"], event.get("index", event.get("name")))
        for event in world.events
        if event["type"] in ("start_producer", "retire_producer")
    ]


async def test_a_server_gets_a_producer_of_its_own_and_leaves_with_it(tmp_path: Path) -> None:
    world = World(_config(), tmp_path)
    replies = await _talk(
        world,
        [
            *(AttachGenerator(url=A), AttachGenerator(url=B, key_env="KEY"), ListGenerators()),
            *(DetachGenerator(url=A), AttachGenerator(url=A)),
        ],
    )
    assert [reply.error for reply in replies] == [None] * 5
    listed = {g["name"]: (g["url"], g["state"]) for g in replies[2].generators}
    assert listed["producer-1"] == (A, "starting")
    assert listed["producer-2"] == (B, "starting")
    assert listed["producer-0"][0] == ""
    assert [g["name"] for g in replies[4].generators] == ["producer-0", "producer-2", "producer-3"]
    assert _told(world) == [
        *(("start_producer", 1), ("start_producer", 2)),
        *(("retire_producer", "producer-1"), ("start_producer", 3)),
    ]
    started = [event for event in world.events if event["type"] == "start_producer"]
    assert [(event["server"], event["key_env"]) for event in started] == [(A, ""), (B, "KEY"), (A, "")]


async def test_a_refusal_changes_nothing_and_says_why(tmp_path: Path) -> None:
    world = World(_config(), tmp_path)
    replies = await _talk(world, [DetachGenerator(url=A), AttachGenerator(url=A), AttachGenerator(url=A)])
    assert "was not attached" in (replies[0].error or "")
    assert replies[1].error is None
    assert "attached already" in (replies[2].error or "")
    assert _told(world) == [("start_producer", 1)]


async def test_a_resumed_run_has_its_servers_attached_again_under_their_numbers(tmp_path: Path) -> None:
    first = World(_config(updates=2), tmp_path)
    await _talk(first, [AttachGenerator(url=A), AttachGenerator(url=B, key_env="KEY"), DetachGenerator(url=A)])
    again = World(_config(updates=4), tmp_path, version=2)
    replies = await _talk(again, [AttachGenerator(url=A)])
    assert replies[0].error is None
    assert _told(again) == [("start_producer", 2), ("start_producer", 3)]


async def test_servers_of_the_configuration_are_not_attached_twice(tmp_path: Path) -> None:
    world = World(_config(generate={"engine": "vllm-http", "servers": [A]}), tmp_path)
    replies = await _talk(world, [AttachGenerator(url=A), ListGenerators()])
    assert "attached already" in (replies[0].error or "")
    assert [(g["name"], g["url"]) for g in replies[1].generators] == [("producer-0", A)]
