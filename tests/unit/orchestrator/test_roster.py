"""Judge endpoints that people attach and detach while a run goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from stream_rl.config import JudgeEndpoint
from stream_rl.errors import ConfigError
from stream_rl.link.codec import Decoder
from stream_rl.link.memory import MemoryHub
from stream_rl.messages import AttachJudge, DetachJudge, FromControl, JudgesReply, ListJudges, ToControl
from stream_rl.observe.rundir import read_json_lines
from tests.unit.orchestrator.test_service import World, _config


class _Standing(msgspec.Struct, frozen=True):
    url: str
    model: str


class Endpoints:
    """Who is attached; as strict as the real pool about duplicates and strangers."""

    def __init__(self) -> None:
        self.attached: list[JudgeEndpoint] = []

    def attach(self, config: JudgeEndpoint) -> None:
        if config.key_env == "NOT_SET":
            raise ConfigError("judge.endpoints.1.key_env", "the environment variable NOT_SET is not set.")
        self.attached.append(config)

    def detach(self, url: str) -> None:
        if url not in [e.url for e in self.attached]:
            raise ConfigError("judge.endpoints", f"{url} is not attached.")
        self.attached = [e for e in self.attached if e.url != url]

    def standing(self) -> list[_Standing]:
        return [_Standing(e.url, e.model) for e in self.attached]


async def _talk(world: World, questions: list[FromControl]) -> list[JudgesReply]:
    replies: list[JudgesReply] = []

    async def control(hub: MemoryHub) -> None:
        receive: Decoder[ToControl] = Decoder(ToControl)
        async with hub.connect(role="control", name="me", receive=receive) as link:
            for question in questions:
                await link.send(question)
            async for delivery in link:
                delivery.ack()
                assert isinstance(delivery.message, JudgesReply)
                replies.append(delivery.message)
                if len(replies) == len(questions):
                    return

    world.controls.append(control)
    await world.play()
    return replies


def _attach(url: str, **more: Any) -> AttachJudge:
    return AttachJudge(endpoint={"url": url, "model": "m", **more})


async def test_endpoints_come_and_go_and_the_reply_says_how_they_stand(tmp_path: Path) -> None:
    world = World(_config(), tmp_path)
    world.judges = Endpoints()
    replies = await _talk(
        world,
        [_attach("http://a/v1"), _attach("http://b/v1", concurrency=3), DetachJudge(url="http://a/v1"), ListJudges()],
    )
    assert [r.error for r in replies] == [None] * 4
    assert replies[1].endpoints == [{"url": "http://a/v1", "model": "m"}, {"url": "http://b/v1", "model": "m"}]
    assert replies[3].endpoints == [{"url": "http://b/v1", "model": "m"}]
    assert world.judges.attached[0].concurrency == 3
    events = [(e["type"], e["url"]) for e in read_json_lines(world.run_dir.events) if e["type"].startswith("judge_")]
    assert events == [
        ("judge_attached", "http://a/v1"),
        ("judge_attached", "http://b/v1"),
        ("judge_detached", "http://a/v1"),
    ]


async def test_a_refusal_says_why_and_changes_nothing(tmp_path: Path) -> None:
    world = World(_config(), tmp_path)
    world.judges = Endpoints()
    replies = await _talk(
        world,
        [
            _attach("http://a/v1", key_env="NOT_SET"),
            _attach("http://a/v1", concurrency=0),
            _attach("http://a/v1", colour="red"),
            DetachJudge(url="http://nobody/v1"),
        ],
    )
    assert all(r.error for r in replies)
    assert "NOT_SET is not set" in str(replies[0].error)
    assert "not an endpoint" in str(replies[1].error)
    assert "colour" in str(replies[2].error)
    assert "not attached" in str(replies[3].error)
    assert world.judges.attached == []


async def test_a_run_without_judging_says_so(tmp_path: Path) -> None:
    (reply,) = await _talk(World(_config(), tmp_path), [_attach("http://a/v1")])
    assert "judges nothing" in str(reply.error)


async def test_what_was_attached_is_attached_again_after_a_restart(tmp_path: Path) -> None:
    first = World(_config(), tmp_path)
    first.judges = Endpoints()
    first.on_trained = lambda update: first.stop.set() if update == 1 else None
    await _talk(first, [_attach("http://a/v1", price_in=2.5), _attach("http://b/v1"), DetachJudge(url="http://a/v1")])
    version = [e for e in first.events if e["type"] == "checkpoint"][-1]["version"]
    second = World(_config(), tmp_path, version=version)
    second.judges = Endpoints()
    await second.play()
    assert [(e.url, e.price_in) for e in second.judges.attached] == [("http://b/v1", 0.0)]
