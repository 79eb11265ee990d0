"""The client against real servers over real HTTP, well-behaved and not."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from aiohttp import web

from judge.client import OpenAIJudge
from judge.rules.engine import decide_all
from stream_rl.config import JudgeEndpoint
from stream_rl.errors import ConfigError
from stream_rl.ports import Judge
from stream_rl.rubrics.vocabulary import Vocabulary, builtin
from stream_rl.types import Verdict
from tests.unit.judge.builders import CLEAN, trajectory
from tests.unit.judge.conftest import FaultServer, endless, reset, says, stall, status

SMALL = Vocabulary(
    rubrics=tuple(builtin()[r] for r in ("precision.valid_actions", "focus.needed_objects", "care.small_scope")),
    digest="small",
)
GOOD = ["positive", "positive", "not_applicable"]


def endpoint(url: str, *, deadline_s: float = 20.0, concurrency: int = 8, key_env: str = "") -> JudgeEndpoint:
    return JudgeEndpoint(url=url, deadline_s=deadline_s, concurrency=concurrency, key_env=key_env)


@asynccontextmanager
async def judging(*endpoints: JudgeEndpoint, chunk: int = 64) -> AsyncIterator[OpenAIJudge]:
    async with OpenAIJudge(endpoints, SMALL, chunk=chunk, environ={"JUDGE_KEY": "sk-secret"}) as judge:
        yield judge


async def tag(server: FaultServer, *, deadline_s: float = 20.0) -> Verdict:
    async with judging(endpoint(server.url, deadline_s=deadline_s)) as judge:
        return await judge.tag(trajectory(CLEAN))


def values(verdict: Verdict) -> list[str]:
    return [t.value for t in verdict.tags]


async def test_the_whole_vocabulary_through_the_embedded_judge(embedded: str) -> None:
    async with OpenAIJudge([endpoint(embedded)], builtin()) as opened:
        judge: Judge = opened
        verdict = await judge.tag(trajectory(CLEAN))
    expected = decide_all(CLEAN, builtin().ids)
    assert [t.rubric for t in verdict.tags] == list(builtin().ids)
    assert {t.rubric: (t.value, t.reason) for t in verdict.tags} == {
        r: (f.value, f.reason) for r, f in expected.items()
    }
    assert verdict.trajectory_id == "g/0"
    assert (verdict.endpoint, verdict.model) == (embedded, "rules")
    assert verdict.prompt_tokens > 2000
    assert verdict.completion_tokens > 500
    assert verdict.seconds > 0


async def test_the_request_is_what_the_protocol_asks_for_and_holds_no_outcome(faulty: FaultServer) -> None:
    async with judging(endpoint(faulty.url, key_env="JUDGE_KEY")) as judge:
        await judge.tag(trajectory(CLEAN))
    request = json.loads(faulty.requests[0])
    assert request["temperature"] == 0
    assert request["model"] == "rules"
    assert request["max_tokens"] > 0
    assert request["response_format"]["type"] == "json_schema"
    assert [m["role"] for m in request["messages"]] == ["system", "user"]
    assert "reward" not in request["messages"][1]["content"]
    assert faulty.headers[0]["Authorization"] == "Bearer sk-secret"


async def test_chunks_are_asked_separately_and_joined_in_order(faulty: FaultServer) -> None:
    async with judging(endpoint(faulty.url), chunk=2) as judge:
        verdict = await judge.tag(trajectory(CLEAN))
    assert len(faulty.requests) == 2
    assert [t.rubric for t in verdict.tags] == list(SMALL.ids)
    assert values(verdict) == GOOD


@pytest.mark.parametrize(
    "fault",
    [
        status(429, Retry_After="0.05"),
        status(429, Retry_After="soon"),
        status(500, "oh no"),
        status(503),
        reset,
        status(200, "<html>hello</html>"),
        status(200, "{}"),
        status(200, '{"choices": []}'),
        endless,
    ],
)
async def test_passing_faults_are_retried(faulty: FaultServer, fault: object) -> None:
    faulty.script = [fault]  # type: ignore[list-item]
    assert values(await tag(faulty)) == GOOD
    assert len(faulty.requests) == 2


async def test_retry_after_is_honoured(faulty: FaultServer) -> None:
    faulty.script = [status(429, Retry_After="0.3")]
    started = anyio.current_time()
    await tag(faulty)
    assert anyio.current_time() - started >= 0.3


async def test_a_retry_after_beyond_the_deadline_abstains_at_once(faulty: FaultServer) -> None:
    faulty.script = [status(429, "slow down", Retry_After="60")]
    started = anyio.current_time()
    verdict = await tag(faulty)
    assert anyio.current_time() - started < 10.0  # and the deadline is 20 s
    assert verdict.abstained
    assert "HTTP 429: slow down" in verdict.tags[0].reason


async def test_a_stalled_request_is_tried_again_within_the_deadline(faulty: FaultServer) -> None:
    faulty.script = [stall]
    assert values(await tag(faulty, deadline_s=3.0)) == GOOD


async def test_the_deadline_ends_everything(faulty: FaultServer) -> None:
    faulty.script = [stall] * 50
    with anyio.fail_after(30):
        verdict = await tag(faulty, deadline_s=0.4)
    assert values(verdict) == ["abstained"] * 3
    assert verdict.endpoint == ""
    assert "0.4 s" in verdict.tags[0].reason


@pytest.mark.parametrize(("code", "requests"), [(401, 1), (403, 1), (404, 1), (400, 1), (302, 1)])
async def test_what_will_not_pass_is_not_retried(faulty: FaultServer, code: int, requests: int) -> None:
    faulty.script = [status(code, "no", Location="http://127.0.0.1:9/")] * 5
    verdict = await tag(faulty)
    assert verdict.abstained
    assert f"HTTP {code}: no" in verdict.tags[0].reason
    assert len(faulty.requests) == requests


async def test_nothing_listens() -> None:
    async with judging(endpoint("http://127.0.0.1:9/v1", deadline_s=1.0)) as judge:
        verdict = await judge.tag(trajectory(CLEAN))
        assert judge.standing()[0].failed >= 1
    assert verdict.abstained
    assert "cannot connect" in verdict.tags[0].reason


async def test_what_is_no_http_at_all() -> None:
    async def babble(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(b"\x00\x01 SSH-2.0 nonsense\r\n\r\n" * 20)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, babble)
        async with judging(endpoint(f"http://127.0.0.1:{port}/v1", deadline_s=0.3)) as judge:
            assert (await judge.tag(trajectory(CLEAN))).abstained
        group.cancel_scope.cancel()


async def test_one_repair_for_what_is_missing_then_abstention(faulty: FaultServer) -> None:
    first = {"tags": [{"id": "precision.valid_actions", "reason": "r", "tag": "violation"}]}
    usage = {"prompt_tokens": 100, "completion_tokens": 10}
    faulty.script = [says(json.dumps(first), usage=usage), says("I cannot.", usage=usage)]
    verdict = await tag(faulty)
    assert values(verdict) == ["violation", "abstained", "abstained"]
    assert [t.reason for t in verdict.tags] == ["r", "no usable answer", "no usable answer"]
    assert (verdict.prompt_tokens, verdict.completion_tokens) == (200, 20)
    assert len(faulty.requests) == 2
    repair = json.loads(faulty.requests[1])["messages"][0]["content"]
    assert "- precision.valid_actions |" not in repair
    assert "- focus.needed_objects |" in repair


async def test_a_repair_can_succeed_and_a_failed_one_keeps_what_there_was(faulty: FaultServer) -> None:
    first = {"tags": [{"id": "precision.valid_actions", "reason": "r", "tag": "violation"}]}
    faulty.script = [says(json.dumps(first))]
    assert values(await tag(faulty)) == ["violation", "positive", "not_applicable"]
    faulty.script = [says(json.dumps(first)), *[status(401)] * 5]
    assert values(await tag(faulty)) == ["violation", "abstained", "abstained"]


@pytest.mark.parametrize("content", [None, "", "null", "[]", '{"tags": "positive"}', "\ud800" * 3])
async def test_empty_and_odd_contents_lead_to_a_repair(faulty: FaultServer, content: object) -> None:
    faulty.script = [says(content)]
    assert values(await tag(faulty)) == GOOD


async def test_an_endpoint_without_structured_output_is_remembered(faulty: FaultServer) -> None:
    faulty.script = [status(400, '{"error": {"message": "unknown field response_format"}}')]
    async with judging(endpoint(faulty.url)) as judge:
        assert values(await judge.tag(trajectory(CLEAN))) == GOOD
        assert values(await judge.tag(trajectory(CLEAN))) == GOOD
    assert ["response_format" in json.loads(r) for r in faulty.requests] == [True, False, False]


async def test_an_endpoint_that_knows_no_limits_of_length_keeps_its_structured_output(faulty: FaultServer) -> None:
    faulty.script = [status(400, "Invalid schema for response_format 'tags': 'maxLength' is not permitted.")]
    async with judging(endpoint(faulty.url)) as judge:
        assert values(await judge.tag(trajectory(CLEAN))) == GOOD
        assert values(await judge.tag(trajectory(CLEAN))) == GOOD
    assert [b"maxLength" in r and b"maxItems" in r for r in faulty.requests] == [True, False, False]
    assert b"max" not in faulty.requests[1].replace(b"max_tokens", b"")
    assert all("response_format" in json.loads(r) for r in faulty.requests)


async def test_concurrency_is_bounded_and_queueing_costs_no_deadline(faulty: FaultServer) -> None:
    """With every request the clock goes on by more than a deadline: what waits for a place has waited for longer."""
    ahead_s = 0.0
    both = anyio.Event()

    async def slow(_: object) -> object:
        nonlocal ahead_s
        ahead_s += 30.0
        if faulty.in_flight == 2:
            both.set()
        await both.wait()
        await anyio.sleep(0.02)
        return await says(json.dumps(dict.fromkeys(SMALL.ids, "positive")))(None)  # type: ignore[arg-type]

    faulty.script = [slow] * 12  # type: ignore[list-item]
    verdicts: list[Verdict] = []
    made = OpenAIJudge(
        [endpoint(faulty.url, deadline_s=20.0, concurrency=2)],
        SMALL,
        hedge_share=0.0,
        clock=lambda: time.monotonic() + ahead_s,
    )
    async with made as judge:

        async def one() -> None:
            verdicts.append(await judge.tag(trajectory(CLEAN)))

        async with anyio.create_task_group() as group:
            for _ in range(12):
                group.start_soon(one)
    assert faulty.most_in_flight == 2
    assert [values(v) for v in verdicts] == [["positive"] * 3] * 12


async def test_another_endpoint_takes_over(faulty: FaultServer, second: FaultServer) -> None:
    faulty.script = [status(401)]
    async with judging(endpoint(faulty.url), endpoint(second.url)) as judge:
        verdict = await judge.tag(trajectory(CLEAN))
    assert values(verdict) == GOOD
    assert verdict.endpoint == second.url


async def test_load_spreads_over_endpoints(faulty: FaultServer, second: FaultServer) -> None:
    async with judging(endpoint(faulty.url, concurrency=2), endpoint(second.url, concurrency=2)) as judge:
        async with anyio.create_task_group() as group:
            for i in range(20):
                group.start_soon(judge.tag, trajectory(CLEAN, f"g/{i}"))
        assert [s.in_flight for s in judge.standing()] == [0, 0]
        assert sum(s.answered for s in judge.standing()) == 20
    assert min(len(faulty.requests), len(second.requests)) >= 3


async def test_a_proxy_in_the_environment_does_not_capture_loopback(
    faulty: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert values(await tag(faulty)) == GOOD


async def test_a_missing_key_is_named_at_start(faulty: FaultServer) -> None:
    with pytest.raises(ConfigError, match=r"judge\.endpoints\.0\.key_env: the environment variable NO_SUCH_KEY"):
        async with judging(endpoint(faulty.url, key_env="NO_SUCH_KEY")):
            pass


@pytest.mark.parametrize("url", ["embedded", "ftp://judge/v1", "https://me:hunter2@judge/v1"])
def test_endpoints_must_be_addresses_without_secrets(url: str) -> None:
    with pytest.raises(ConfigError, match=r"judge\.endpoints\.1\.url") as caught:
        OpenAIJudge([JudgeEndpoint(url="http://judge/v1"), JudgeEndpoint(url=url)], SMALL)
    assert "hunter2" not in str(caught.value)


async def test_the_key_is_nowhere_to_be_read(faulty: FaultServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    faulty.script = [status(401, "Incorrect API key provided: sk-secret.")]
    async with judging(endpoint(faulty.url, key_env="JUDGE_KEY")) as judge:
        verdict = await judge.tag(trajectory(CLEAN))
        assert "sk-secret" not in repr(judge.standing())
    assert "provided: ***." in verdict.tags[0].reason
    assert "HTTP 401" in caplog.text
    assert "sk-secret" not in caplog.text + repr(verdict)


async def test_an_endpoint_that_repeats_the_key_does_not_spread_it(faulty: FaultServer) -> None:
    entries = [{"id": r, "reason": "I was let in with sk-secret", "tag": "violation"} for r in SMALL.ids]
    faulty.script = [says(json.dumps({"tags": entries}), model="model-of-sk-secret")]
    async with judging(endpoint(faulty.url, key_env="JUDGE_KEY")) as judge:
        verdict = await judge.tag(trajectory(CLEAN))
    assert verdict.tags[0].reason == "I was let in with ***"
    assert verdict.model == "model-of-***"


async def test_many_at_once_find_out_that_there_is_no_structured_output(faulty: FaultServer) -> None:
    all_asked = anyio.Event()

    async def strict(request: web.Request) -> web.StreamResponse:
        """Refuses all six once all six are there."""
        if len(faulty.requests) == 6:
            all_asked.set()
        await all_asked.wait()
        return await status(422, "json_schema: extra fields not permitted")(request)

    faulty.script = [strict] * 6
    verdicts: list[Verdict] = []
    async with judging(endpoint(faulty.url)) as judge:

        async def one() -> None:
            verdicts.append(await judge.tag(trajectory(CLEAN)))

        async with anyio.create_task_group() as group:
            for _ in range(6):
                group.start_soon(one)
        assert judge.standing()[0].error_share == 0.0
    assert [values(v) for v in verdicts] == [GOOD] * 6
    assert len(faulty.requests) == 12


async def test_a_lying_endpoint_is_repaired_by_another(faulty: FaultServer, second: FaultServer) -> None:
    faulty.script = [says("{}")] * 9
    async with judging(endpoint(faulty.url), endpoint(second.url)) as judge:
        assert values(await judge.tag(trajectory(CLEAN))) == GOOD
        assert [s.abstain_share for s in judge.standing()] == [1.0, 0.0]
    assert (len(faulty.requests), len(second.requests)) == (1, 1)


async def test_tokens_and_their_price_are_counted(faulty: FaultServer) -> None:
    usage = {"prompt_tokens": 3000, "completion_tokens": 500}
    faulty.script = [says(json.dumps(dict.fromkeys(SMALL.ids, "positive")), usage=usage)] * 2
    config = JudgeEndpoint(url=faulty.url, price_in=0.4, price_out=2.0)
    async with judging(config) as judge:
        for _ in range(2):
            await judge.tag(trajectory(CLEAN))
        (standing,) = judge.standing()
    assert (standing.prompt_tokens, standing.completion_tokens) == (6000, 1000)
    assert standing.price == pytest.approx(0.0044)  # 6000 at 0.4 and 1000 at 2.0 for a million
    assert (standing.state, standing.answered, standing.failed, standing.limit) == ("up", 2, 0, 8)


async def test_cancellation_is_respected(faulty: FaultServer) -> None:
    faulty.script = [stall]
    async with judging(endpoint(faulty.url, deadline_s=30.0)) as judge:
        with anyio.move_on_after(0.1) as scope:
            await judge.tag(trajectory(CLEAN))
        assert scope.cancelled_caught
        assert judge.standing()[0].in_flight == 0
        assert values(await judge.tag(trajectory(CLEAN))) == GOOD
