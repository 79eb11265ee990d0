"""A lease becomes its trajectories, each sent as it ends, and one `GroupClosed` after them."""

from __future__ import annotations

from typing import Any

import anyio
import msgspec
import pytest

from envs.pool import WorkerPool
from stream_rl.config import EnvironmentConfig
from stream_rl.errors import EnvironmentLost
from stream_rl.messages import EvalLease, FromProducer, GroupClosed, TrainLease, TrajectoryDone
from stream_rl.ports import GenerateRequest, GenerateResult
from stream_rl.producer.group import run_group
from stream_rl.rubrics.writing import WritingOptions, load_template
from stream_rl.types import StepResult, Task
from tests.unit.producer.twins import TASK, ScriptedGenerator, ToyWorld, means, sampled
from tests.unit.virtual_time import in_virtual_time

FIELDS: dict[str, Any] = {
    "group_id": "g7", "task": TASK, "size": 3, "seed": 9, "temperature": 1.0, "max_tokens": 8, "max_turns": 5,
    "deadline_s": 10.0,
}  # fmt: skip
WON = [StepResult(text="", done=True, success=True)]


class Outbox:
    def __init__(self) -> None:
        self.messages: list[FromProducer] = []
        self.arrived = anyio.Event()

    async def send(self, message: FromProducer) -> None:
        self.messages.append(message)
        self.arrived.set()

    @property
    def trajectories(self) -> list[TrajectoryDone]:
        return [message for message in self.messages if isinstance(message, TrajectoryDone)]


async def test_every_trajectory_is_sent_and_then_the_group_is_closed() -> None:
    out = Outbox()
    await run_group(
        TrainLease(**FIELDS, guidance=("search.once",)), means(ScriptedGenerator(), ToyWorld(WON)), out.send
    )
    assert sorted(done.trajectory.id for done in out.trajectories) == ["g7/0", "g7/1", "g7/2"]
    assert all(done.purpose == "train" and done.trajectory.guidance == ("search.once",) for done in out.trajectories)
    assert isinstance(out.messages[-1], GroupClosed)
    assert len(out.messages) == 4
    assert out.messages[-1].group_id == "g7"


async def test_evaluation_shows_no_guidance() -> None:
    out = Outbox()
    lease = EvalLease(**{**FIELDS, "task": Task(environment="toy", split="held_out", index=0)})
    await run_group(lease, means(ScriptedGenerator(), ToyWorld(WON)), out.send)
    assert len(out.trajectories) == 3
    for done in out.trajectories:
        assert (done.purpose, done.trajectory.guidance) == ("eval", ())
        assert [message.role for message in done.trajectory.samples[0].head] == ["user"]


async def test_a_trajectory_does_not_wait_for_its_siblings() -> None:
    out = Outbox()
    first = True

    async def script(request: GenerateRequest) -> GenerateResult:
        nonlocal first
        if first:
            first = False
        else:
            await out.arrived.wait()
        return sampled("go")

    with anyio.fail_after(40):
        await run_group(TrainLease(**FIELDS), means(ScriptedGenerator(script), ToyWorld(WON)), out.send)
    assert len(out.trajectories) == 3


@in_virtual_time
async def test_the_deadline_closes_the_group_with_what_it_has() -> None:
    first = True

    async def script(request: GenerateRequest) -> GenerateResult:
        nonlocal first
        if not first:
            await anyio.Event().wait()
        first = False
        return sampled("go")

    out = Outbox()
    lease = TrainLease(**{**FIELDS, "deadline_s": 0.03})
    await run_group(lease, means(ScriptedGenerator(script), ToyWorld(WON)), out.send)
    assert [done.trajectory.valid for done in out.trajectories] == [True, False, False]
    assert all("deadline of 0.03 s" in str(done.trajectory.error) for done in out.trajectories[1:])
    assert isinstance(out.messages[-1], GroupClosed)


async def test_a_groups_seconds_are_those_of_its_rollouts() -> None:
    now = 0.0

    async def script(request: GenerateRequest) -> GenerateResult:
        nonlocal now
        now += 2.0
        return sampled("go")

    out = Outbox()
    lease = TrainLease(**{**FIELDS, "size": 1})
    await run_group(lease, means(ScriptedGenerator(script), ToyWorld(WON), clock=lambda: now), out.send)
    assert isinstance(out.messages[-1], GroupClosed)
    assert out.messages[-1].states == {"generate": 2.0, "environment": 0.0, "other": 0.0}


def writing() -> WritingOptions:
    return WritingOptions(template=load_template("compact"), bundle_tokens=60)


async def test_bundles_are_written_after_the_last_rollout_and_close_the_group() -> None:
    now = 0.0
    asked: list[str] = []

    async def script(request: GenerateRequest) -> GenerateResult:
        nonlocal now
        writes = request.affinity != "g7"
        asked.append("write" if writes else "play")
        now += 4.0 if writes else 2.0
        return sampled("a1 . b2 . c3 . d4 . e5 ." if writes else "go")

    out = Outbox()
    lease = TrainLease(**{**FIELDS, "size": 2}, bundles=2)
    shared = means(ScriptedGenerator(script), ToyWorld(WON), writing=writing(), clock=lambda: now)
    await run_group(lease, shared, out.send)
    assert asked == ["play", "play", "write", "write"]
    closed = out.messages[-1]
    assert isinstance(closed, GroupClosed)
    assert closed.written is not None
    assert closed.written.bundles == (("a1", "b2", "c3", "d4", "e5"),) * 2
    assert closed.states["write"] == 8.0


@in_virtual_time
async def test_writing_has_what_the_rollouts_left_of_the_deadline() -> None:
    async def script(request: GenerateRequest) -> GenerateResult:
        await anyio.sleep(0.15 if request.affinity == "g7" else 30.0)
        return sampled("go")

    out = Outbox()
    lease = TrainLease(**{**FIELDS, "deadline_s": 0.4}, bundles=2)
    began = anyio.current_time()
    await run_group(lease, means(ScriptedGenerator(script), ToyWorld(WON), writing=writing()), out.send)
    assert anyio.current_time() - began == pytest.approx(0.4)
    closed = out.messages[-1]
    assert isinstance(closed, GroupClosed)
    assert [done.trajectory.valid for done in out.trajectories] == [True] * 3
    assert closed.written is not None
    assert (closed.written.bundles, closed.written.error) == ((), "the deadline of 0.4 s passed")


async def test_nothing_is_written_unasked() -> None:
    out = Outbox()
    generator = ScriptedGenerator()
    await run_group(TrainLease(**FIELDS), means(generator, ToyWorld(WON), writing=writing()), out.send)
    closed = out.messages[-1]
    assert isinstance(closed, GroupClosed)
    assert closed.written is None
    assert "write" not in closed.states
    assert len(generator.requests) == 3


async def test_a_bug_in_one_rollout_is_not_sent_as_data() -> None:
    out = Outbox()
    with pytest.raises(ExceptionGroup) as caught:
        await run_group(TrainLease(**FIELDS), means(ScriptedGenerator(), ToyWorld([ZeroDivisionError()])), out.send)
    assert caught.group_contains(ZeroDivisionError)
    assert not any(isinstance(message, GroupClosed) for message in out.messages)


async def test_a_killed_worker_costs_the_rollouts_it_held_only_and_they_are_made_again() -> None:
    """Two real workers; the first action of one rollout kills its worker, the others play three steps."""
    world = "tests.unit.envs.worlds:Counter"
    killed = False

    async def script(request: GenerateRequest) -> GenerateResult:
        nonlocal killed
        if killed:
            return sampled("go")
        killed = True
        return sampled("kill")

    out = Outbox()
    async with WorkerPool([EnvironmentConfig(name=world, workers=2)]) as pool:
        shared = means(ScriptedGenerator(script), ToyWorld([]))
        lease = TrainLease(**{**FIELDS, "task": Task(environment=world, split="train", index=0), "size": 4})
        await run_group(lease, msgspec.structs.replace(shared, environments=pool), out.send)
        assert pool.restarts == 1
    assert sorted(done.trajectory.id for done in out.trajectories) == ["g7/0", "g7/1", "g7/2", "g7/3"]
    assert all(done.trajectory.success and len(done.trajectory.turns) == 3 for done in out.trajectories)
    closed = out.messages[-1]
    assert isinstance(closed, GroupClosed)
    (reason,) = closed.rerolled
    assert reason == "environment_lost"
    assert 1 <= closed.rerolled[reason] <= 2  # the one that killed, and the other that its worker held
    assert closed.rerolled_tokens >= len("kill") + 1


async def test_seconds_and_tokens_of_a_dropped_attempt_are_accounted_for() -> None:
    now = 0.0

    async def script(request: GenerateRequest) -> GenerateResult:
        nonlocal now
        now += 2.0
        return sampled("go")

    class LostOnce(ToyWorld):
        def answer(self, turn: int, action: str) -> StepResult:
            if self.opened == 1:
                raise EnvironmentLost("gone")
            return WON[0]

    out = Outbox()
    shared = means(ScriptedGenerator(script), LostOnce([]), clock=lambda: now)
    await run_group(TrainLease(**{**FIELDS, "size": 1}), shared, out.send)
    closed = out.messages[-1]
    assert isinstance(closed, GroupClosed)
    assert (closed.rerolled, closed.rerolled_tokens) == ({"environment_lost": 1}, 3)
    assert closed.states == {"generate": 4.0, "environment": 0.0, "other": 0.0}
