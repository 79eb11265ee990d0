"""The worker pool over worlds with places, and over servers that die."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import anyio
import pytest

from envs.pool import WorkerPool
from stream_rl.config import EnvironmentConfig
from stream_rl.errors import EnvironmentLost
from stream_rl.types import Observation, StepResult, Task
from tests.unit.envs.appworld.processes import children, ended

TASK = Task(environment="appworld", split="train", index=0)


class TwoPlaces:
    """A world that has two places in a process."""

    def prepare(self) -> int:
        return 2

    def reset(self, task: Task, seed: int) -> Observation:
        return Observation(text="here")

    def step(self, action: str) -> StepResult:
        return StepResult(text=action)


async def test_episodes_past_the_places_wait_for_one() -> None:
    name = f"{__name__}:TwoPlaces"
    async with WorkerPool([EnvironmentConfig(name=name)]) as pool:
        held = [await pool.open(name) for _ in range(2)]
        with anyio.move_on_after(0.05) as waited:
            await pool.open(name)
        assert waited.cancelled_caught
        opened: list[str] = []

        async def play() -> None:
            session = await pool.open(name)
            opened.append((await session.reset(Task(environment=name, split="train", index=0), 0)).text)
            await session.aclose()

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(play)
            await held[0].aclose()
        assert opened == ["here"] * 3
        await held[1].aclose()


def is_there(folder: str) -> bool:
    return Path(folder).is_dir()


@pytest.fixture
def config(root: Path, python: Path) -> EnvironmentConfig:
    return EnvironmentConfig(name="appworld", data=str(root), options={"python": str(python), "servers": 2})


async def test_a_killed_server_is_replaced_and_its_episode_runs_again(config: EnvironmentConfig) -> None:
    async with WorkerPool([config]) as pool:
        first, other = await pool.open("appworld"), await pool.open("appworld")
        await first.reset(TASK, 0)
        await other.reset(TASK, 0)
        servers = children(children(pool.pids[0])[0])
        os.kill(servers[0], signal.SIGKILL)
        with pytest.raises(EnvironmentLost, match="killed by signal 9"):
            await first.step("print(1)")
        await first.aclose()
        again = await pool.open("appworld")
        await again.reset(TASK, 0)
        assert (await again.step("complete(42)")).success
        assert (await other.step("complete(42)")).success  # it never noticed
        assert pool.restarts == 0
        assert pool.quarantine.tasks == ()


async def test_servers_die_with_their_worker_however_it_dies(config: EnvironmentConfig) -> None:
    async with WorkerPool([config], first_backoff_s=0.01) as pool:
        session = await pool.open("appworld")
        await session.reset(TASK, 0)
        worker = pool.pids[0]
        zygote = children(worker)[0]
        root = os.readlink(f"/proc/{zygote}/cwd")
        assert is_there(root)
        with ended(zygote, *children(zygote)):
            os.kill(worker, signal.SIGKILL)
        assert not is_there(root)
        with pytest.raises(EnvironmentLost):
            await session.step("print(1)")
