from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html.parser import HTMLParser
from pathlib import Path

import aiohttp
import anyio
import pytest

from stream_rl.errors import ConfigError
from stream_rl.messages import (
    AttachJudge,
    DetachJudge,
    FromControl,
    JudgesReply,
    StatusReply,
    StatusRequest,
    ToControl,
    Tune,
    TuneReply,
)
from stream_rl.observe.rundir import append_json
from stream_rl.page import snapshot
from stream_rl.page.guard import SECURITY_HEADERS
from stream_rl.page.reader import RunReader
from stream_rl.page.server import RunPage
from stream_rl.rubrics.vocabulary import builtin
from tests.unit.judge.builders import transcript
from tests.unit.ledgers import Group, write_run

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"


class Orchestrator:
    """Answers as the control link does; keeps what it was asked."""

    def __init__(self, *, running: bool = True) -> None:
        self.asked: list[FromControl] = []
        self.running = running

    async def __call__(self, message: FromControl) -> ToControl | None:
        self.asked.append(message)
        if not self.running:
            return None
        match message:
            case StatusRequest():
                return StatusReply(status={"run": "r", "phase": "training", "version": 3})
            case Tune(async_depth=9):
                return TuneReply(async_depth=1, paused=False, error="async_depth = 9 is not between 0 and 2")
            case Tune():
                return TuneReply(async_depth=2, paused=bool(message.paused))
            case _:
                return JudgesReply(endpoints=[{"url": "http://judge/v1"}])


@asynccontextmanager
async def serving(root: Path, asked: Orchestrator) -> AsyncIterator[aiohttp.ClientSession]:
    hostile = transcript(HOSTILE, (HOSTILE, HOSTILE))
    run = write_run(root / "run", [Group(id="g0", episodes=(hostile,))], {})
    append_json(run.metrics, {"step": 0, "version": 1, "loss": 0.5})
    page = RunPage("run", {"environments": ["household"]}, RunReader(run, builtin()), asked)
    async with anyio.create_task_group() as tasks:
        address = await tasks.start(page.serve, 0)
        async with aiohttp.ClientSession(address) as session:
            yield session
        tasks.cancel_scope.cancel()


async def token(session: aiohttp.ClientSession) -> dict[str, str]:
    async with session.get("/") as response:
        found = re.search(r'name="page-token" content="([^"]{20,})"', await response.text())
    assert found
    return {"X-Stream-RL-Token": found[1]}


async def test_every_answer_carries_the_security_headers(tmp_path: Path) -> None:
    async with serving(tmp_path, Orchestrator()) as session:
        for path in ("/", "/assets/app.js", "/api/updates", "/api/rollout?id=none", "/nowhere", "/assets/../server.py"):
            async with session.get(path) as response:
                for name, value in SECURITY_HEADERS.items():
                    assert response.headers[name] == value, path


async def test_what_a_world_wrote_stays_json_text(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, Orchestrator()) as session,
        session.get("/api/rollout", params={"id": "g0/0"}) as response,
    ):
        assert response.content_type == "application/json"
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        found = await response.json()
    assert found["turns"][0]["action"] == HOSTILE


async def test_a_rebound_name_gets_nothing(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, Orchestrator()) as session,
        session.get("/", headers={"Host": "evil.example"}) as response,
    ):
        assert response.status == 403
        assert "page-token" not in await response.text()


async def test_a_judge_is_attached_with_the_pages_token(tmp_path: Path) -> None:
    orchestrator = Orchestrator()
    async with serving(tmp_path, orchestrator) as session:
        body = {"url": "http://judge/v1", "model": "m", "concurrency": 3}
        async with session.post("/api/judges/attach", json=body, headers=await token(session)) as response:
            assert response.status == 200
            assert await response.json() == {"endpoints": [{"url": "http://judge/v1"}]}
        async with session.post(
            "/api/judges/detach", json={"url": "http://judge/v1"}, headers=await token(session)
        ) as response:
            assert response.status == 200
    attached, detached = orchestrator.asked
    assert isinstance(attached, AttachJudge)
    assert (attached.endpoint["model"], attached.endpoint["concurrency"]) == ("m", 3)
    assert detached == DetachJudge(url="http://judge/v1")


async def test_an_action_without_the_token_reaches_nobody(tmp_path: Path) -> None:
    orchestrator = Orchestrator()
    async with serving(tmp_path, orchestrator) as session:
        for headers in ({}, {"X-Stream-RL-Token": "guess"}, {**await token(session), "Origin": "http://evil.example"}):
            async with session.post("/api/tune", json={"paused": True}, headers=headers) as response:
                assert response.status == 403
                assert (await response.json())["error"]
    assert orchestrator.asked == []


@pytest.mark.parametrize(
    ("path", "body", "word"),
    [
        ("judges/attach", {"model": "m"}, "url"),
        ("judges/attach", {"url": "http://judge/v1", "key": "sk-secret"}, "key"),
        ("judges/attach", {"url": "http://judge/v1", "concurrency": 0}, "concurrency"),
        ("judges/detach", {}, "url"),
        ("tune", {"async_depth": "deep"}, "async_depth"),
    ],
)
async def test_a_wrong_action_says_what_is_wrong(tmp_path: Path, path: str, body: dict[str, object], word: str) -> None:
    orchestrator = Orchestrator()
    async with (
        serving(tmp_path, orchestrator) as session,
        session.post(f"/api/{path}", json=body, headers=await token(session)) as response,
    ):
        assert response.status == 400
        assert word in (await response.json())["error"]
    assert orchestrator.asked == []


async def test_what_the_orchestrator_refuses_is_told_in_its_words(tmp_path: Path) -> None:
    async with serving(tmp_path, Orchestrator()) as session:
        async with session.post("/api/tune", json={"async_depth": 9}, headers=await token(session)) as response:
            assert response.status == 409
            assert (await response.json())["error"] == "async_depth = 9 is not between 0 and 2"
        async with session.post("/api/tune", json={"paused": True}, headers=await token(session)) as response:
            assert await response.json() == {"async_depth": 2, "paused": True}


async def test_many_who_look_are_one_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "_FRESH_S", 1000.0)  # twenty requests may take a busy machine longer than a second
    orchestrator = Orchestrator()
    async with serving(tmp_path, orchestrator) as session:

        async def look() -> None:
            async with session.get("/api/live") as response:
                assert (await response.json())["version"] == 3

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(look)
    assert len(orchestrator.asked) == 1


async def test_of_a_run_that_is_over_its_last_words_are_shown(tmp_path: Path) -> None:
    async with serving(tmp_path, Orchestrator(running=False)) as session:
        async with session.get("/api/live") as response:
            found = await response.json()
        assert (found["running"], found["phase"], found["version"]) == (False, "not running", 1)
        async with session.post("/api/tune", json={"paused": True}, headers=await token(session)) as response:
            assert response.status == 409
            assert "not running" in (await response.json())["error"]


@pytest.mark.parametrize("query", ["since=x", "points=1e9", f"since={10**30}", "since=--1"])
async def test_numbers_that_are_none_are_refused(tmp_path: Path, query: str) -> None:
    async with serving(tmp_path, Orchestrator()) as session, session.get(f"/api/updates?{query}") as response:
        assert response.status == 400
        assert "whole number" in (await response.json())["error"]


async def test_a_damaged_file_is_told_and_the_server_goes_on(tmp_path: Path) -> None:
    async with serving(tmp_path, Orchestrator()) as session:
        (tmp_path / "run" / "eval.jsonl").write_text("nonsense\n", encoding="utf-8")
        async with session.get("/api/evaluations") as response:
            assert response.status == 500
            assert "eval.jsonl, line 1" in (await response.json())["error"]
        async with session.get("/api/updates") as response:
            assert response.status == 200


async def test_a_port_in_use_is_a_configuration_error(tmp_path: Path) -> None:
    async with serving(tmp_path, Orchestrator()) as session:
        port = session._base_url.port if session._base_url else 0
        run = write_run(tmp_path / "other", [])
        with pytest.raises(ConfigError, match=r"page\.port: port \d+ is in use"):
            await RunPage("other", {}, RunReader(run, builtin()), Orchestrator()).serve(port or 0)


class _Inline(HTMLParser):
    """Finds what a strict content security policy would refuse to run, and labels that are missing."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: list[str] = []
        self.unlabelled: list[str] = []
        self._labels = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = dict(attrs)
        self._labels += tag == "label"
        if tag in ("input", "select") and not self._labels:
            self.unlabelled.append(str(attrs))
        if any(name.startswith("on") or name == "style" for name in names):
            self.refused.append(f"{tag} {attrs}")
        if tag == "style" or (tag == "script" and "src" not in names):
            self.refused.append(tag)
        for name in ("src", "href"):
            if not (names.get(name) or "/").startswith(("/", "#")):
                self.refused.append(f"{tag} {names[name]}")

    def handle_endtag(self, tag: str) -> None:
        self._labels -= tag == "label"


async def test_the_page_holds_nothing_inline_and_nothing_from_elsewhere(tmp_path: Path) -> None:
    async with serving(tmp_path, Orchestrator()) as session:
        async with session.get("/") as response:
            text = await response.text()
        found = _Inline()
        found.feed(text)
        assert found.refused == []
        assert found.unlabelled == []
        for name in set(re.findall(r"/assets/([\w.]+)", text)):
            async with session.get(f"/assets/{name}") as response:
                assert response.status == 200


def test_scripts_never_turn_text_into_markup() -> None:
    folder = Path(__file__).parents[3] / "stream_rl" / "page" / "assets"
    scripts = sorted(folder.glob("*.js"))
    assert scripts
    for script in scripts:
        text = script.read_text(encoding="utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|Function\(", text), (
            script
        )
        assert not re.search(r"https?://(?!127\.0\.0\.1|www\.w3\.org)", text), script
