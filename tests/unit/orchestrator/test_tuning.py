"""The async depth and the pause of a run that goes on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio

from stream_rl.config import Config
from stream_rl.link.codec import Decoder
from stream_rl.link.memory import MemoryHub
from stream_rl.messages import FromControl, SelectedGroup, StatusReply, StatusRequest, ToControl, Tune, TuneReply
from stream_rl.observe.rundir import read_json_lines
from tests.unit.orchestrator.test_service import World, _config, _lags

Ask = Callable[[FromControl], Awaitable[ToControl]]


def _tunable(**over: Any) -> Config:
    return _config(async_depth=1, max_lag=3, updates=12, eval={"every": 0}, **over)


async def _play(world: World, after_update: int, person: Callable[[Ask], Awaitable[None]]) -> None:
    """Run; once `after_update` is trained, somebody asks things."""
    reached = anyio.Event()
    world.on_trained = lambda update: reached.set() if update == after_update else None

    async def control(hub: MemoryHub) -> None:
        receive: Decoder[ToControl] = Decoder(ToControl)
        async with hub.connect(role="control", name="me", receive=receive) as link:
            replies = aiter(link)

            async def ask(question: FromControl) -> ToControl:
                await link.send(question)
                delivery = await anext(replies)
                delivery.ack()
                return delivery.message

            await reached.wait()
            await person(ask)

    world.controls.append(control)
    await world.play()


async def test_a_raised_depth_lets_generation_run_further_ahead(tmp_path: Path) -> None:
    world = World(_tunable(), tmp_path)
    world.capacity = 64

    async def person(ask: Ask) -> None:
        assert await ask(Tune(async_depth=3)) == TuneReply(async_depth=3, paused=False)

    await _play(world, 2, person)
    lags = {update: max(group.update - _oldest(group) for group in groups) for update, groups in world.rounds.items()}
    assert max(lags[update] for update in (0, 1, 2)) <= 1
    assert max(lags.values()) == 3
    depths = [line["async_depth"] for line in read_json_lines(world.run_dir.metrics)]
    assert depths[0] == 1
    assert depths[-1] == 3
    assert sorted(world.rounds) == list(range(12))


async def test_a_lowered_depth_is_reached_without_throwing_anything_away(tmp_path: Path) -> None:
    world = World(_tunable(), tmp_path)

    async def person(ask: Ask) -> None:
        assert await ask(Tune(async_depth=0)) == TuneReply(async_depth=0, paused=False)

    await _play(world, 1, person)
    late = [g.update - _oldest(g) for update, groups in world.rounds.items() if update > 5 for g in groups]
    assert set(late) == {0}
    lines = list(read_json_lines(world.run_dir.metrics))
    assert all(set(line["groups"]["discarded"]) == {"not_selected"} for line in lines)


async def test_a_depth_whose_groups_would_be_refused_is_refused_itself(tmp_path: Path) -> None:
    world = World(_tunable(), tmp_path)

    async def person(ask: Ask) -> None:
        for depth in (4, -1):
            reply = await ask(Tune(async_depth=depth, paused=True))
            assert isinstance(reply, TuneReply)
            assert reply.error is not None
            assert "not between 0 and 3" in reply.error
            assert "max_lag = 3" in reply.error
            assert (reply.async_depth, reply.paused) == (1, False)

    await _play(world, 0, person)
    assert sorted(world.rounds) == list(range(12))


async def test_a_paused_run_leases_nothing_has_a_name_for_it_and_goes_on(tmp_path: Path) -> None:
    world = World(_tunable(stall_s=20.0), tmp_path)
    seen: list[int] = []

    async def person(ask: Ask) -> None:
        assert await ask(Tune(paused=True)) == TuneReply(async_depth=1, paused=True)
        await anyio.sleep(0.3)  # what was leased before comes in
        seen.append(len(world.leases))
        await anyio.sleep(0.3)
        seen.append(len(world.leases))
        status = await ask(StatusRequest())
        assert isinstance(status, StatusReply)
        assert status.status["phase"] == "paused"
        assert status.status["paused"]
        assert await ask(Tune(paused=False)) == TuneReply(async_depth=1, paused=False)

    await _play(world, 3, person)
    assert seen[0] == seen[1] < len(world.leases)
    assert sorted(world.rounds) == list(range(12))


async def test_a_depth_that_was_set_outlives_a_restart(tmp_path: Path) -> None:
    world = World(_config(async_depth=2, updates=6, eval={"every": 0}), tmp_path)
    world.ledger.put("async_depth", "0")
    await world.play()
    assert set(_lags(world)) == {0}


def _oldest(group: SelectedGroup) -> int:
    return min(span.version for t in group.trajectories for turn in t.turns for span in turn.spans)
