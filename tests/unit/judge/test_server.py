from __future__ import annotations

import io
import json

import aiohttp
import anyio
import pytest

from judge.prompt import chunks, subset
from judge.score_prompt import number, render
from judge.server import BadPrompt, answer, serve
from judge.transcript import quote
from stream_rl.errors import ConfigError
from stream_rl.rubrics.vocabulary import builtin
from tests.unit.judge.builders import CLEAN
from tests.unit.judge.conftest import start_serving


def chat(system: str, user: str) -> bytes:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    return json.dumps({"model": "rules", "messages": messages}).encode()


def good() -> bytes:
    prompt = subset(builtin(), ["precision.valid_actions", "focus.needed_objects", "care.small_scope"])
    return chat(prompt.system, prompt.user(quote(CLEAN)))


def test_the_reply_has_the_asked_form_with_the_reason_first() -> None:
    content, _ = answer(good())
    tags = json.loads(content)["tags"]
    assert [(t["id"], t["tag"]) for t in tags] == [
        ("precision.valid_actions", "positive"),
        ("focus.needed_objects", "positive"),
        ("care.small_scope", "not_applicable"),
    ]
    assert list(tags[0]) == ["id", "reason", "tag"]


def scoring() -> bytes:
    prompt = render(number([builtin()["precision.valid_actions"].hint, "be kind"]))
    return chat(prompt.system, prompt.user(quote(CLEAN)))


def test_scores_have_the_asked_form_with_the_reason_first() -> None:
    content, _ = answer(scoring())
    scores = json.loads(content)["scores"]
    assert [(s["id"], s["score"]) for s in scores] == [(1, 1.0), (2, None)]
    assert list(scores[0]) == ["id", "reason", "score"]


def test_rubrics_of_other_vocabularies_do_not_apply() -> None:
    (prompt,) = chunks(builtin(), 64)
    system = prompt.system.replace("- care.small_scope |", "- mine.own_rubric |")
    tags = {t["id"]: t["tag"] for t in json.loads(answer(chat(system, prompt.user(quote(CLEAN))))[0])["tags"]}
    assert tags["mine.own_rubric"] == "not_applicable"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "not a chat completion request"),
        (b"{}", "not a chat completion request"),
        (b'{"messages": [{"role": "user", "content": null}]}', "not a chat completion request"),
        (b'{"messages": [{"role": "user", "content": "\xff"}]}', "not a chat completion request"),
        (chat("You are helpful.", "hi"), "lists no rubrics and no criteria"),
        (scoring().replace(b'{\\"id\\":2', b'{\\"id\\":'), "unreadable criterion line 2"),
        (scoring().replace(b"TRANSCRIPT>>>", b">>>"), "no transcript between"),
        (good().replace(b"<<<TRANSCRIPT", b"<<<"), "no transcript between"),
        (good().replace(b'{\\"turn\\":1', b'{\\"turn\\":'), "unreadable transcript line"),
    ],
)
def test_what_cannot_be_read_is_refused(body: bytes, said: str) -> None:
    with pytest.raises(BadPrompt, match=said):
        answer(body)


async def test_the_protocol_over_http(embedded: str) -> None:
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{embedded}/chat/completions", data=good()) as response:
            reply = await response.json()
            assert response.status == 200
        content = reply["choices"][0]["message"]["content"]
        assert reply["object"] == "chat.completion"
        assert reply["model"] == "rules"
        assert reply["usage"]["completion_tokens"] == len(content) // 4
        assert reply["usage"]["prompt_tokens"] > 500
        async with session.get(f"{embedded}/models") as response:
            assert [m["id"] for m in (await response.json())["data"]] == ["rules"]
        async with session.get(embedded.removesuffix("/v1") + "/health") as response:
            assert await response.json() == {"status": "ok"}


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("POST", "/chat/completions", b"{}", 400),
        ("GET", "/chat/completions", b"", 405),
        ("POST", "/completions", b"{}", 404),
        ("POST", "/chat/completions", b" " * (9 * 1024 * 1024), 413),
    ],
)
async def test_errors_have_the_openai_form(embedded: str, method: str, path: str, body: bytes, code: int) -> None:
    data = io.BytesIO(body)
    async with aiohttp.ClientSession() as session, session.request(method, embedded + path, data=data) as response:
        assert response.status == code
        error = (await response.json())["error"]
        assert error["type"] == "invalid_request_error"
        assert error["message"]


async def test_serve_reports_its_address_and_ends_with_its_scope() -> None:
    async with anyio.create_task_group() as group:
        url = await group.start(start_serving)
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{url}/models") as response:
                assert response.status == 200
            group.cancel_scope.cancel()
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(f"{url}/models")


async def test_a_port_in_use_is_a_clear_error() -> None:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener:
        with pytest.raises(ConfigError, match=f"port {port} on 127.0.0.1 is in use"):
            await start_serving(port=port, task_status=anyio.TASK_STATUS_IGNORED)


async def test_an_impossible_host_is_a_clear_error() -> None:
    with pytest.raises(ConfigError, match=r"cannot listen on 203\.0\.113\.1:0"):
        await serve(host="203.0.113.1")


async def test_the_delay_option_delays() -> None:
    async with anyio.create_task_group() as group:
        url = await group.start(lambda task_status: start_serving(delay_s=0.1, task_status=task_status))
        started = anyio.current_time()
        async with aiohttp.ClientSession() as session, session.post(f"{url}/chat/completions", data=good()) as response:
            assert response.status == 200
        assert anyio.current_time() - started >= 0.1
        group.cancel_scope.cancel()
