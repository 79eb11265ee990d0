from __future__ import annotations

import re

import pytest
from aiohttp import web

from judge.ping import PingReport, ping
from stream_rl.config import JudgeEndpoint
from tests.unit.judge.conftest import Act, FaultServer, reset, running, says, stall, status


async def report(url: str, *, key_env: str = "", model: str = "rules", deadline_s: float = 20.0) -> PingReport:
    config = JudgeEndpoint(url=url, model=model, key_env=key_env, deadline_s=deadline_s)
    return await ping(config, environ={"JUDGE_KEY": "sk-secret"})


async def test_the_embedded_judge_answers(embedded: str) -> None:
    found = await report(embedded)
    assert (found.ok, found.model, found.problem) == (True, "rules", "")
    assert 0 < found.latency_s < 20


@pytest.mark.parametrize(
    ("fault", "key_env", "said"),
    [
        (
            status(401, "bad key sk-secret"),
            "JUDGE_KEY",
            r"401: bad key \*\*\*; the key in JUDGE_KEY is not accepted",
        ),
        (status(403, "forbidden"), "", "it wants a key: set key_env"),
        (status(404, "nothing here"), "", r"wrong path\? .* usually ending in /v1"),
        (status(429, "quota"), "", "set requests_per_minute"),
        (status(500, "boom"), "", "HTTP 500: boom; the server itself fails"),
        (status(200, "<html>"), "", "does not speak the OpenAI protocol"),
        (status(422, "odd"), "", "HTTP 422: odd; the request was refused"),
        (says("Hello! How can I help?"), "", "not with the JSON asked for.*Hello!"),
        (reset, "", "connection broke"),
    ],
)
async def test_what_is_wrong_in_one_sentence(faulty: FaultServer, fault: Act, key_env: str, said: str) -> None:
    faulty.script = [fault]
    found = await report(faulty.url, key_env=key_env)
    assert not found.ok
    assert re.search(said, found.problem), found.problem
    assert "sk-secret" not in found.problem
    assert "\n" not in found.problem


async def test_silence_is_what_it_is_called(faulty: FaultServer) -> None:
    faulty.script = [stall]
    found = await report(faulty.url, deadline_s=0.3)
    assert not found.ok
    assert "no answer within 0.3 s; raise deadline_s" in found.problem


async def test_nothing_listens() -> None:
    found = await report("http://127.0.0.1:9/v1")
    assert "cannot connect" in found.problem
    assert "start the server, or correct the address" in found.problem


async def test_a_missing_key_is_reported(faulty: FaultServer) -> None:
    assert "NO_SUCH_KEY is not set" in (await report(faulty.url, key_env="NO_SUCH_KEY")).problem


async def test_a_wrong_model_name_is_corrected() -> None:
    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "qwen3-32b"}, {"id": "other"}]})

    app = web.Application()
    app.add_routes([web.get("/v1/models", models)])
    async with running(app) as url:
        found = await report(url, model="qwen-32b")
    assert "did you mean 'qwen3-32b'?" in found.problem
