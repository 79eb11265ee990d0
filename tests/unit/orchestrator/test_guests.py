"""vLLM servers that people attach and detach while a run goes on."""

from __future__ import annotations

from pathlib import Path

import anyio

from stream_rl.generate.vllm_http import UNKNOWN
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
from stream_rl.orchestrator.fleet import Fleet, ProducerState
from stream_rl.orchestrator.guests import state_of
from tests.unit.orchestrator.test_service import World, _config

A, B = "http://a:8000", "http://b:8000"


async def _talk(
    world: World, questions: list[FromControl], *, producers: tuple[str, ...] = ("p",)
) -> list[GeneratorsReply]:
    """Ask once the first update is trained: everybody is connected then."""
    replies: list[GeneratorsReply] = []
    reached = anyio.Event()
    world.on_trained = lambda update: reached.set()

    async def control(hub: MemoryHub) -> None:
        receive: Decoder[ToControl] = Decoder(ToControl)
        async with hub.connect(role="control", name="me", receive=receive) as link:
            await reached.wait()
            for question in questions:
                await link.send(question)
            async for delivery in link:
                delivery.ack()
                assert isinstance(delivery.message, GeneratorsReply)
                replies.append(delivery.message)
                if len(replies) == len(questions):
                    return

    world.controls.append(control)
    await world.play(producers)
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
    assert listed["producer-1"] == (A, "not connected")
    assert listed["producer-2"] == (B, "not connected")
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
    questions: list[FromControl] = [DetachGenerator(url=A), AttachGenerator(url=A), AttachGenerator(url=A)]
    replies = await _talk(world, questions, producers=("p", "producer-1"))
    assert "was not attached" in (replies[0].error or "")
    assert replies[1].error is None
    assert replies[2].error == f"{A} is attached already, as producer-1"
    assert _told(world) == [("start_producer", 1)]


async def test_attaching_a_server_that_is_not_connected_tries_it_again_at_once(tmp_path: Path) -> None:
    """It may have been dropped, or wait half a minute for its next try, while its owner has started it again."""
    world = World(_config(), tmp_path)
    replies = await _talk(world, [AttachGenerator(url=A), AttachGenerator(url=A)])
    assert [reply.error for reply in replies] == [None, None]
    assert _told(world) == [("start_producer", 1), ("retire_producer", "producer-1"), ("start_producer", 2)]
    assert [g["name"] for g in replies[1].generators] == ["producer-0", "producer-2"]


async def test_the_list_says_who_catches_up_and_who_is_held_back(tmp_path: Path) -> None:
    world = World(_config(), tmp_path)
    (reply,) = await _talk(world, [ListGenerators()], producers=("p", "producer-0"))
    assert reply.generators[0]["state"] == "ready"
    joining = ProducerState(peer="x", name="producer-1", engine="vllm-http", capacity=8, version=-1)
    assert state_of(joining, 0) == "catching up"
    assert state_of(ProducerState(peer="x", name="producer-1", engine="vllm-http", capacity=8, version=3), 3) == "ready"
    assert state_of(ProducerState(peer="x", name="producer-1", engine="vllm-http", version=3), 3) == "held back"
    assert state_of(ProducerState(peer="x", name="producer-1"), 3) == "not connected"
    assert state_of(None, 0) == "not connected"


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
    assert "one of the configuration's servers" in (replies[0].error or "")
    assert [(g["name"], g["url"]) for g in replies[1].generators] == [("producer-0", A)]


def test_a_server_whose_weights_are_unknown_gets_no_lease_and_nothing_goes_live_before_its_first_update() -> None:
    fleet = Fleet()
    fleet.by_peer["x"] = joining = ProducerState(peer="x", name="producer-1", capacity=8, version=UNKNOWN)
    assert fleet.choose(1, version=0) is None
    assert not fleet.all_at(0)
    joining.version = 0
    assert fleet.choose(1, version=0) is joining
