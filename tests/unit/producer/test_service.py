"""The producer over a link: leases, updates, accounts and endings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio
import msgspec
import pytest

from stream_rl.errors import WeightsRejected
from stream_rl.messages import (
    Finish,
    FromProducer,
    GroupClosed,
    ProducerReady,
    ProducerStats,
    TrainLease,
    TrajectoryDone,
    UpdateWeights,
    WeightsFailed,
    WeightsLive,
)
from stream_rl.ports import GenerateRequest, GenerateResult
from stream_rl.producer.service import Producer
from stream_rl.rubrics.writing import WritingOptions, load_template
from stream_rl.types import StepResult, WeightsManifest
from tests.unit.producer.twins import TASK, LetterRenderer, MemoryLink, ScriptedGenerator, ToyWorld, sampled, vocabulary

WON = [StepResult(text="", done=True, success=True)]
M = TypeVar("M", bound=FromProducer)


def lease(group_id: str, size: int = 2) -> TrainLease:
    return TrainLease(
        group_id=group_id, task=TASK, size=size, seed=1, temperature=1.0, max_tokens=8, max_turns=3, deadline_s=60.0
    )


def update(version: int) -> UpdateWeights:
    return UpdateWeights(
        manifest=WeightsManifest(run_id="r", version=version, path="p", fingerprint=f"f{version}", num_bytes=1)
    )


class Orchestrator:
    """The test's end of the link."""

    def __init__(self, link: MemoryLink) -> None:
        self.link = link
        self.seen: list[FromProducer] = []

    async def until(self, kind: type[M]) -> M:
        async for message in self.link.sent:
            self.seen.append(message)
            if isinstance(message, kind):
                return message
        raise AssertionError(f"the link closed before a {kind.__name__}")


@asynccontextmanager
async def serving(
    generator: ScriptedGenerator, world: ToyWorld | None = None, **options: Any
) -> AsyncIterator[Orchestrator]:
    """A running producer. The block must end it."""
    link = MemoryLink()
    producer = Producer(
        link,
        generator,
        world or ToyWorld(WON),
        LetterRenderer(),
        vocabulary(),
        **{"capacity": 4, "max_model_len": 1000, "stats_every_s": 60.0, **options},
    )
    orchestrator = Orchestrator(link)
    try:
        with anyio.fail_after(40):
            async with anyio.create_task_group() as group:
                group.start_soon(producer.run)
                yield orchestrator
    finally:
        link.close()


class Latch:
    """Requests wait until it is let go."""

    def __init__(self) -> None:
        self.waiting = anyio.Event()
        self.let_go = anyio.Event()

    async def __call__(self, request: GenerateRequest) -> GenerateResult:
        self.waiting.set()
        await self.let_go.wait()
        return sampled("go")


async def test_leases_become_groups_and_are_acknowledged_when_closed() -> None:
    async with serving(ScriptedGenerator()) as orchestrator:
        ready = await orchestrator.until(ProducerReady)
        assert (ready.engine, ready.version, ready.capacity) == ("scripted", 0, 4)
        orchestrator.link.deliver(lease("a"))
        assert (await orchestrator.until(GroupClosed)).group_id == "a"
        assert [type(message) for message in orchestrator.seen] == [
            ProducerReady, TrajectoryDone, TrajectoryDone, GroupClosed
        ]  # fmt: skip
        finish = Finish()
        orchestrator.link.deliver(finish)
        stats = await orchestrator.until(ProducerStats)
        assert stats.generated_tokens == 2 * 3
        assert orchestrator.link.acked == [lease("a"), finish]


async def test_tokens_of_written_bundles_are_generated_tokens() -> None:
    async def script(request: GenerateRequest) -> GenerateResult:
        return sampled("go" if request.affinity == "a" else "a1 . b2 . c3 . d4 . e5 .")

    options = WritingOptions(template=load_template("compact"), bundle_tokens=60)
    async with serving(ScriptedGenerator(script), writing=options) as orchestrator:
        orchestrator.link.deliver(msgspec.structs.replace(lease("a"), bundles=4))
        closed = await orchestrator.until(GroupClosed)
        assert closed.written is not None
        assert len(closed.written.bundles) == 4
        orchestrator.link.deliver(Finish())
        stats = await orchestrator.until(ProducerStats)
    assert stats.generated_tokens == 2 * 3 + 4 * 25  # "go" and the end; 24 characters and the end


async def test_an_account_holds_the_cpu_seconds_since_the_last_one() -> None:
    laps = iter([{"producers": 0.5, "generators": 2.0}])
    async with serving(ScriptedGenerator(), cpu=lambda: next(laps)) as orchestrator:
        await orchestrator.until(ProducerReady)
        orchestrator.link.deliver(Finish())
        assert (await orchestrator.until(ProducerStats)).cpu_s == {"producers": 0.5, "generators": 2.0}


async def test_a_lease_that_still_runs_is_not_acknowledged_and_holds_up_no_other() -> None:
    latch = Latch()

    async def script(request: GenerateRequest) -> GenerateResult:
        return await latch(request) if request.affinity == "slow" else sampled("go")

    async with serving(ScriptedGenerator(script)) as orchestrator:
        orchestrator.link.deliver(lease("slow"))
        orchestrator.link.deliver(lease("fast"))
        assert (await orchestrator.until(GroupClosed)).group_id == "fast"
        await anyio.wait_all_tasks_blocked()
        assert orchestrator.link.acked == [lease("fast")]
        latch.let_go.set()
        assert (await orchestrator.until(GroupClosed)).group_id == "slow"
        await anyio.wait_all_tasks_blocked()
        assert orchestrator.link.acked == [lease("fast"), lease("slow")]
        orchestrator.link.deliver(Finish())
        await orchestrator.until(ProducerStats)


async def test_updates_are_applied_in_order_while_rollouts_go_on() -> None:
    latch = Latch()
    generator = ScriptedGenerator(latch)
    async with serving(generator) as orchestrator:
        orchestrator.link.deliver(lease("a"))
        await latch.waiting.wait()
        orchestrator.link.deliver(update(1))
        orchestrator.link.deliver(update(2))
        assert (await orchestrator.until(WeightsLive)).report.fingerprint == "f1"
        assert (await orchestrator.until(WeightsLive)).report.fingerprint == "f2"
        assert generator.version == 2
        latch.let_go.set()
        await orchestrator.until(GroupClosed)
        await anyio.wait_all_tasks_blocked()
        assert orchestrator.link.acked == [update(1), update(2), lease("a")]
        orchestrator.link.deliver(Finish())
        await orchestrator.until(ProducerStats)


async def test_draining_lets_groups_finish_and_holds_new_ones_back() -> None:
    latch = Latch()
    generator = ScriptedGenerator(latch)
    async with serving(generator, mode="drain") as orchestrator:
        orchestrator.link.deliver(lease("old"))
        await latch.waiting.wait()
        orchestrator.link.deliver(update(1))
        await anyio.wait_all_tasks_blocked()
        orchestrator.link.deliver(lease("new"))
        await anyio.wait_all_tasks_blocked()
        assert generator.version == 0
        assert {request.affinity for request in generator.requests} == {"old"}
        latch.let_go.set()
        assert (await orchestrator.until(GroupClosed)).group_id == "old"
        await orchestrator.until(WeightsLive)
        assert (await orchestrator.until(GroupClosed)).group_id == "new"
        orchestrator.link.deliver(Finish())
        await orchestrator.until(ProducerStats)
    kinds = [type(message) for message in orchestrator.seen]
    assert kinds.index(WeightsLive) > kinds.index(GroupClosed)
    assert kinds.count(TrajectoryDone) == 4


async def test_a_rejected_update_is_told_and_then_ends_the_producer() -> None:
    async def reject(manifest: WeightsManifest) -> None:
        raise WeightsRejected("fingerprint f1 expected, f9 found")

    generator = ScriptedGenerator(Latch())
    generator.update_with = reject
    link = MemoryLink()
    world = ToyWorld(WON)
    producer = Producer(link, generator, world, LetterRenderer(), vocabulary(), capacity=1, max_model_len=100)
    link.deliver(lease("a"))
    link.deliver(update(1))
    with anyio.fail_after(40), pytest.raises(WeightsRejected, match="f9 found"):
        await producer.run()
    failed = await Orchestrator(link).until(WeightsFailed)
    assert (failed.version, failed.error) == (1, "fingerprint f1 expected, f9 found")
    assert world.opened == world.closed == 2
    link.close()


@pytest.mark.parametrize("end", [lambda link: link.deliver(Finish(reason="done")), MemoryLink.hang_up])
async def test_finish_and_a_closed_link_cancel_what_runs(end: Callable[[MemoryLink], None]) -> None:
    latch = Latch()
    world = ToyWorld(WON)
    async with serving(ScriptedGenerator(latch), world) as orchestrator:
        orchestrator.link.deliver(lease("a", size=3))
        await latch.waiting.wait()
        end(orchestrator.link)
    assert world.opened == world.closed == 3
    assert lease("a", size=3) not in orchestrator.link.acked


async def test_a_bug_ends_the_producer() -> None:
    link = MemoryLink()
    producer = Producer(
        link, ScriptedGenerator(), ToyWorld([ZeroDivisionError()]), LetterRenderer(), vocabulary(),
        capacity=1, max_model_len=100,
    )  # fmt: skip
    link.deliver(lease("a"))
    with anyio.fail_after(40), pytest.raises(ExceptionGroup) as caught:
        await producer.run()
    assert caught.group_contains(ZeroDivisionError)
    link.close()


async def test_accounts_add_up_and_say_what_the_time_went_to() -> None:
    now = 0.0
    latch = Latch()
    paused, go_on = anyio.Event(), anyio.Event()

    async def slow_update(manifest: WeightsManifest) -> None:
        paused.set()
        await go_on.wait()

    generator = ScriptedGenerator(latch)
    generator.update_with = slow_update
    generator.pause_s = 4.0
    async with serving(generator, clock=lambda: now) as orchestrator:
        await orchestrator.until(ProducerReady)
        now += 1.0  # nothing to do
        orchestrator.link.deliver(lease("a"))
        await latch.waiting.wait()
        now += 2.0  # two requests in the generator
        orchestrator.link.deliver(update(1))
        await paused.wait()
        now += 4.0  # an update, over the same requests
        go_on.set()
        await orchestrator.until(WeightsLive)
        updated = await orchestrator.until(ProducerStats)
        now += 8.0  # requests again
        latch.let_go.set()
        await orchestrator.until(GroupClosed)
        await anyio.wait_all_tasks_blocked()
        now += 16.0  # nothing to do
        orchestrator.link.deliver(Finish())
        stats = await orchestrator.until(ProducerStats)
    nothing = {"write": 0.0, "environment": 0.0, "wait_for_credit": 0.0}
    assert updated.states == {"paused_for_sync": 4.0, "generate": 2.0, "wait_for_lease": 1.0, **nothing}
    assert stats.states == {"paused_for_sync": 0.0, "generate": 8.0, "wait_for_lease": 16.0, **nothing}
    assert (updated.total_s, stats.total_s) == (7.0, 24.0)
    assert stats.parts["generator"] == {"paused_for_sync": 0.0, "generate": 8.0, "write": 0.0, "idle": 16.0}
    assert updated.slots["paused_for_sync"] == 2 * 4.0  # both requests
    assert sum(updated.slots.values()) == 4 * 7.0


async def test_accounts_come_every_few_seconds_and_hold_what_is_new() -> None:
    began = anyio.current_time()
    async with serving(ScriptedGenerator(), stats_every_s=0.02) as orchestrator:
        orchestrator.link.deliver(lease("a"))
        await orchestrator.until(GroupClosed)
        for _ in range(3):
            await orchestrator.until(ProducerStats)
        orchestrator.link.deliver(Finish())
    # On a busy machine an account may have come before the group was closed.
    stats = [message for message in orchestrator.seen if isinstance(message, ProducerStats)]
    assert sum(s.generated_tokens for s in stats) == 6
    for s in stats:
        assert s.total_s == pytest.approx(sum(s.states.values()))
        assert s.total_s > 0.0
    assert sum(s.total_s for s in stats) <= anyio.current_time() - began  # no second is told twice
