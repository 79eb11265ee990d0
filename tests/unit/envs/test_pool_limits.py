"""What the pool does about worlds that print, grow, or have a task that kills."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from envs.pool import WorkerPool
from stream_rl.config import EnvironmentConfig
from stream_rl.errors import ConfigError, EnvironmentFailed
from stream_rl.types import Task

WORLDS = "tests.unit.envs.worlds:"


def config(world: str, **fields: Any) -> EnvironmentConfig:
    return EnvironmentConfig(name=WORLDS + world, **fields)


def task(world: str, index: int = 0) -> Task:
    return Task(environment=WORLDS + world, split="train", index=index)


async def replaced(pool: WorkerPool, old: list[int]) -> None:
    with anyio.fail_after(40):
        while not pool.pids or set(pool.pids) & set(old):
            await pool.changed()


async def test_a_world_that_prints_disturbs_nothing() -> None:
    async with WorkerPool([config("Printer")]) as pool:
        session = await pool.open(WORLDS + "Printer")
        await session.reset(task("Printer"), 1)
        results = [await session.step("a") for _ in range(3)]
        assert [result.text.split()[0] for result in results] == ["1", "2", "3"]
        assert pool.restarts == 0


async def test_a_task_that_kills_twice_is_refused_by_name_and_others_are_not() -> None:
    async with WorkerPool([config("Counter")], first_backoff_s=0.01) as pool:
        for _ in range(2):
            bystander = await pool.open(WORLDS + "Counter")
            await bystander.reset(task("Counter", 2), 1)
            session = await pool.open(WORLDS + "Counter")
            await session.reset(task("Counter", 7), 1)
            pids = pool.pids
            with pytest.raises(EnvironmentFailed, match="SIGKILL"):
                await session.step("kill")
            with pytest.raises(EnvironmentFailed, match="SIGKILL"):
                await bystander.step("a")
            await session.aclose()
            await bystander.aclose()
            await replaced(pool, pids)
        session = await pool.open(WORLDS + "Counter")
        for seed in range(2):
            with pytest.raises(EnvironmentFailed, match="Counter/train/7 is refused: it brought down 2 workers"):
                await session.reset(task("Counter", 7), seed)
        assert pool.quarantine.tasks == (f"{WORLDS}Counter/train/7",)
        assert pool.quarantine.num_refusals == 2
        assert pool.restarts == 2
        await session.reset(task("Counter", 2), 1)  # the bystander is not to blame
        assert (await session.step("a")).text.startswith("1 ")


async def test_a_task_that_killed_twice_kills_no_third_worker_however_soon_it_comes_again() -> None:
    async with WorkerPool([config("Counter", workers=3)]) as pool:
        for _ in range(2):
            session = await pool.open(WORLDS + "Counter")
            await session.reset(task("Counter", 7), 1)
            with pytest.raises(EnvironmentFailed, match="SIGKILL"):
                await session.step("kill")
            await session.aclose()
        assert pool.restarts == 2
        session = await pool.open(WORLDS + "Counter")
        with pytest.raises(EnvironmentFailed, match="it brought down 2 workers"):
            await session.reset(task("Counter", 7), 1)


async def test_a_worker_that_grew_ends_between_episodes_and_costs_none() -> None:
    async with WorkerPool([config("Hungry", worker_memory_mib=300)], first_backoff_s=0.01) as pool:
        pids = pool.pids
        first, second = await pool.open(WORLDS + "Hungry"), await pool.open(WORLDS + "Hungry")
        await first.reset(task("Hungry"), 1)
        await second.reset(task("Hungry", 1), 1)
        await first.step("290")
        await anyio.sleep(0.06)  # it weighs itself at most twenty times a second
        await second.step("0")
        await first.aclose()
        assert (await second.step("0")).text == str(pids[0])  # what it holds goes on
        await second.aclose()
        third = await pool.open(WORLDS + "Hungry")  # waits for the new worker
        await third.reset(task("Hungry", 2), 1)
        assert (await third.step("0")).text not in map(str, pids)
        assert pool.restarts == 1
        assert pool.quarantine.tasks == ()


async def test_one_call_cannot_take_more_than_twice_the_limit() -> None:
    async with WorkerPool([config("Hungry", worker_memory_mib=300)]) as pool:
        pids = pool.pids
        session = await pool.open(WORLDS + "Hungry")
        await session.reset(task("Hungry"), 1)
        with pytest.raises(EnvironmentFailed, match="MemoryError"):
            await session.step("4000")
        assert pool.pids == pids
        await session.reset(task("Hungry", 1), 1)
        assert (await session.step("1")).text == str(pids[0])


async def test_a_limit_the_world_itself_is_above_is_refused_at_start() -> None:
    with pytest.raises(ConfigError, match=r"environments\.0\.worker_memory_mib: 3 is less than the \d+ MiB"):
        async with WorkerPool([config("Counter", worker_memory_mib=3)]):
            pytest.fail("started")


async def test_tasks_are_counted_by_worlds_that_can() -> None:
    async with WorkerPool([config("Counted"), config("Counter")]) as pool:
        assert pool.num_tasks(WORLDS + "Counted", "train") == 12
        assert pool.num_tasks(WORLDS + "Counted", "held_out") == 3
        assert pool.num_tasks(WORLDS + "Counter", "train") is None
    with pytest.raises(ConfigError, match=r"cannot be counted: FileNotFoundError: train\.txt"):
        async with WorkerPool([config("Uncountable")]):
            pytest.fail("started")


async def test_a_world_of_two_methods() -> None:
    async with WorkerPool([config("TwoMethods")]) as pool:
        session = await pool.open(WORLDS + "TwoMethods")
        assert (await session.reset(task("TwoMethods", 4), 1)).text == f"{WORLDS}TwoMethods/train/4"
        assert (await session.step("end")).done
    with pytest.raises(ConfigError, match="no method step"):
        async with WorkerPool([config("OneMethod")]):
            pytest.fail("started")
