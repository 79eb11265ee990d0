"""Endpoints that come, go, slow down and die while taggings run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import pytest

from judge.client import OpenAIJudge
from stream_rl.config import JudgeEndpoint
from stream_rl.errors import ConfigError
from stream_rl.types import Verdict
from tests.contract.judge.driving import tag_all
from tests.contract.judge.fault_server import SMALL, Fault, FaultServer, drip, stall
from tests.unit.judge.builders import CLEAN, trajectory

GOOD = ["positive"] * 3


def endpoint(server: FaultServer, *, concurrency: int = 8, deadline_s: float = 5.0, tier: int = 0) -> JudgeEndpoint:
    return JudgeEndpoint(url=server.url, model="mixed", concurrency=concurrency, deadline_s=deadline_s, tier=tier)


@asynccontextmanager
async def serving(*servers: FaultServer) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for server in servers:
            await stack.enter_async_context(server.serving())
        yield


def decided(verdicts: list[Verdict]) -> int:
    return sum([tag.value for tag in verdict.tags] == GOOD for verdict in verdicts)


async def test_killing_attaching_and_detaching_lose_no_tagging() -> None:
    dies, leaves, stays, comes = (FaultServer(latency_s=0.005) for _ in range(4))
    async with serving(dies, leaves, stays, comes):
        async with OpenAIJudge([endpoint(dies), endpoint(leaves), endpoint(stays)], SMALL, hedge_share=0.0) as judge:
            last_asked: list[int] = []

            async def change(done: int) -> None:
                match done:
                    case 100:
                        await dies.kill()
                    case 200:
                        judge.attach(endpoint(comes))
                    case 300:
                        (leaving,) = (s for s in judge.standing() if s.url == leaves.url)
                        on_their_way = leaving.in_flight - leaves.in_flight
                        judge.detach(leaves.url)
                        last_asked.append(len(leaves.log) + on_their_way)

            verdicts = await tag_all(judge, 800, workers=24, progress=change)
            assert decided(verdicts) == 800
            assert [s.url for s in judge.standing()] == [dies.url, stays.url, comes.url]
        assert len(comes.log) > 100
        assert len(leaves.log) <= last_asked[0]


async def test_a_detached_endpoint_finishes_what_it_has() -> None:
    server = FaultServer(latency_s=0.2)
    async with serving(server), OpenAIJudge([endpoint(server)], SMALL) as judge:
        verdicts: list[Verdict] = []

        async def tag() -> None:
            verdicts.append(await judge.tag(trajectory(CLEAN)))

        async with anyio.create_task_group() as group:
            group.start_soon(tag)
            await server.asked.wait()
            judge.detach(server.url)
            assert [(s.state, s.in_flight) for s in judge.standing()] == [("draining", 1)]
            judge.attach(endpoint(server))  # it may come back while it drains
            assert [s.state for s in judge.standing()] == ["draining", "up"]
        assert decided(verdicts) == 1
        assert [s.state for s in judge.standing()] == ["up"]


async def test_without_any_endpoint_all_is_abstained_at_once() -> None:
    async with OpenAIJudge([], SMALL) as judge:
        verdict = await judge.tag(trajectory(CLEAN))
        scores = await judge.score(trajectory(CLEAN), ("be kind",))
        assert judge.standing() == ()
    assert (verdict.abstained, verdict.endpoint) == (True, "")
    assert verdict.tags[0].reason == "no judge endpoint is attached"
    assert (scores.scores, scores.endpoint) == ((None,), "")


async def test_the_last_endpoint_leaving_ends_the_queue() -> None:
    server = FaultServer({stall: 1.0})
    verdicts: list[Verdict] = []
    async with serving(server), OpenAIJudge([endpoint(server, concurrency=1, deadline_s=1.5)], SMALL) as judge:

        async def tag() -> None:
            verdicts.append(await judge.tag(trajectory(CLEAN)))

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(tag)
            await server.asked.wait()
            judge.detach(server.url)
            await anyio.wait_all_tasks_blocked()
            assert len(verdicts) == 2  # the one in flight has its deadline; the others have nothing to wait for
        assert [v.abstained for v in verdicts] == [True] * 3
        assert judge.standing() == ()


async def test_what_cannot_be_attached() -> None:
    server = FaultServer()
    async with serving(server), OpenAIJudge([endpoint(server)], SMALL, environ={}) as judge:
        with pytest.raises(ConfigError, match=r"judge\.endpoints\.1\.url: .* is attached already"):
            judge.attach(endpoint(server))
        with pytest.raises(ConfigError, match=r"judge\.endpoints\.1\.key_env: .*NO_SUCH_KEY is not set"):
            judge.attach(JudgeEndpoint(url="http://other/v1", key_env="NO_SUCH_KEY"))
        with pytest.raises(ConfigError, match=r"judge\.endpoints\.1\.concurrency: .* 4096"):
            judge.attach(JudgeEndpoint(url="http://other/v1", concurrency=4096))
        with pytest.raises(ConfigError, match=r"http://127.0.0.1:1/v1 is not attached; attached: http"):
            judge.detach("http://127.0.0.1:1/v1")
        judge.attach(JudgeEndpoint(url=server.url, model="another"))
        assert [s.model for s in judge.standing()] == ["mixed", "another"]
        judge.detach(server.url)
        assert judge.standing() == ()


@pytest.mark.parametrize("fault", [stall, drip])
async def test_an_answer_that_does_not_come_ends_at_the_deadline(fault: Fault) -> None:
    server = FaultServer({fault: 1.0})
    async with serving(server), OpenAIJudge([endpoint(server, deadline_s=0.6)], SMALL) as judge:
        started = anyio.current_time()
        with anyio.fail_after(30):
            verdict = await judge.tag(trajectory(CLEAN))
    assert anyio.current_time() - started > 0.5
    assert verdict.abstained
    assert "no answer within" in verdict.tags[0].reason


async def test_an_endpoint_that_becomes_slow_loses_its_share() -> None:
    servers = [FaultServer(latency_s=0.01) for _ in range(3)]
    async with serving(*servers), OpenAIJudge([endpoint(s) for s in servers], SMALL) as judge:
        assert decided(await tag_all(judge, 300, workers=24)) == 300
        before = [len(s.log) for s in servers]
        servers[2].latency_s = 0.2
        assert decided(await tag_all(judge, 600, workers=24)) == 600
        after = [len(s.log) - n for s, n in zip(servers, before, strict=True)]
    assert min(before) > 50  # even as long as they are alike
    assert after[2] < 100
    assert min(after[:2]) > 200


async def test_a_higher_tier_is_asked_for_what_the_lower_one_cannot_keep_up_with() -> None:
    own, hired = FaultServer(latency_s=0.01), FaultServer(latency_s=0.01)
    async with serving(own, hired):
        tiers = [endpoint(hired, concurrency=8, tier=1), endpoint(own, concurrency=4)]
        async with OpenAIJudge(tiers, SMALL, hedge_share=0.0) as judge:  # a late answer is no lack of places
            await tag_all(judge, 60, workers=4)
            assert (len(own.log), len(hired.log)) == (60, 0)
            await tag_all(judge, 200, workers=12)
        assert len(hired.log) > 50


async def test_a_dead_endpoint_goes_down_is_probed_and_comes_back() -> None:
    server = FaultServer()
    async with serving(server):
        address = endpoint(server, deadline_s=2.5)
        port = int(server.url.rsplit(":", 1)[1].split("/")[0])
        async with OpenAIJudge([address], SMALL) as judge:
            assert decided([await judge.tag(trajectory(CLEAN))]) == 1
            await server.kill()
            assert all(verdict.abstained for verdict in await tag_all(judge, 4, workers=4))
            (down,) = judge.standing()
            assert down.state == "down"
            assert "cannot connect" in down.problem
            async with server.serving(port):
                assert decided([await judge.tag(trajectory(CLEAN))]) == 1
            (up,) = judge.standing()
            assert (up.state, up.problem, up.limit) == ("up", "", 8)


async def test_a_late_answer_is_fetched_elsewhere_within_the_budget() -> None:
    steady, stalling = FaultServer(latency_s=0.005), FaultServer(latency_s=0.005)
    async with serving(steady, stalling):
        async with OpenAIJudge(
            [endpoint(s, deadline_s=30.0) for s in (steady, stalling)], SMALL, hedge_share=0.1
        ) as judge:
            await tag_all(judge, 300, workers=4)  # 300 requests at 0.1 earn more than ten hedges
            stalling.strike({stall: 1.0})
            verdict = await judge.tag(trajectory(CLEAN))
            taggings = 301
            while not stalling.counts["stall"]:
                verdict = await judge.tag(trajectory(CLEAN))
                taggings += 1
        assert verdict.endpoint == steady.url
        assert verdict.seconds < 15.0  # an attempt alone would have taken half the deadline of 30 s
        assert len(steady.log) + len(stalling.log) <= 1.1 * taggings + 1
