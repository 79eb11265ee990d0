"""The pool over real worker processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from envs.pool import Backoff, WorkerPool
from stream_rl.config import EnvironmentConfig
from stream_rl.errors import ConfigError, EnvironmentFailed, EnvironmentLost
from stream_rl.types import StepResult, Task

COUNTER = "tests.unit.envs.worlds:Counter"
TASK = Task(environment=COUNTER, split="train", index=4)


def config(world: str = "Counter", **fields: Any) -> EnvironmentConfig:
    return EnvironmentConfig(name=f"tests.unit.envs.worlds:{world}", **fields)


def gone(pid: int) -> bool:
    """No process and no zombie of that number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def play(pool: WorkerPool, actions: list[str]) -> list[StepResult]:
    session = await pool.open(COUNTER)
    try:
        await session.reset(TASK, 1)
        return [await session.step(action) for action in actions]
    finally:
        await session.aclose()


async def test_episodes_of_one_worker_are_apart_and_nothing_is_left() -> None:
    async with WorkerPool([config(options={"limit": 2})]) as pool:
        first, second = await pool.open(COUNTER), await pool.open(COUNTER)
        assert (await first.reset(TASK, 5)).text == f"{COUNTER}/train/4 seed 5"
        await second.reset(TASK, 6)
        assert (await first.step("a")).done is False
        result = await first.step("print")
        assert (result.done, result.success, result.reward) == (True, True, 1.0)
        assert (await second.step("a")).text.startswith("1 in ")
        await first.reset(TASK, 7)
        assert (await first.step("a")).text.startswith("1 in ")
        await first.aclose()
        await first.aclose()
        pids = pool.pids
        assert len(pids) == 1
    assert all(gone(pid) for pid in pids)


async def test_a_raising_environment_loses_its_own_episode_only() -> None:
    async with WorkerPool([config()]) as pool:
        bystander = await pool.open(COUNTER)
        await bystander.reset(TASK, 1)
        for action in ("raise", "wrong type", "wrong field"):
            session = await pool.open(COUNTER)
            await session.reset(TASK, 1)
            with pytest.raises(EnvironmentFailed, match=r"roof fell in|Expected `object`|Expected `float`") as caught:
                await session.step(action)
            assert not isinstance(caught.value, EnvironmentLost)
            with pytest.raises(EnvironmentFailed, match="not reset, or failed before"):
                await session.step("a")
        pids = pool.pids
        assert (await bystander.step("a")).text == f"1 in {pids[0]}"
        assert pool.pids == pids


async def test_a_world_that_lost_its_own_server_says_so_and_the_worker_lives() -> None:
    async with WorkerPool([config()]) as pool:
        session = await pool.open(COUNTER)
        await session.reset(TASK, 1)
        pids = pool.pids
        with pytest.raises(EnvironmentLost, match="the server is gone"):
            await session.step("lose")
        assert pool.pids == pids


@pytest.mark.parametrize(
    ("action", "cause"),
    [
        ("kill", r"signal 9 \(SIGKILL\)"),
        ("exit", "exit code 7"),
        ("garbage", "not a message"),
        ("stall", r"longer than 1 s"),
    ],
)
async def test_a_dead_worker_fails_what_it_held_and_comes_back(action: str, cause: str) -> None:
    async with WorkerPool([config(workers=2, step_deadline_s=1.0 if action == "stall" else 30.0)]) as pool:
        held = [await pool.open(COUNTER) for _ in range(4)]  # least loaded: two on each worker
        where = [0, 0, 0, 0]
        for i, session in enumerate(held):
            await session.reset(TASK, 1)
            where[i] = int((await session.step("a")).text.split()[-1])
        assert sorted(map(where.count, set(where))) == [2, 2]
        doomed = [s for s, pid in zip(held, where, strict=True) if pid == where[0]]
        spared = [s for s, pid in zip(held, where, strict=True) if pid != where[0]]
        with pytest.raises(EnvironmentLost, match=cause):
            await doomed[0].step(action)
        with pytest.raises(EnvironmentLost, match=cause):
            await doomed[1].step("a")
        for session in spared:
            assert (await session.step("a")).text.startswith("2 in ")
        for session in held:
            await session.aclose()
        with anyio.fail_after(40):
            while where[0] in pool.pids or len(pool.pids) < 2:
                await pool.changed()
        assert gone(where[0])
        assert len(await play(pool, ["a"])) == 1


async def test_calls_waiting_behind_others_are_not_late() -> None:
    """Twelve calls of 0.15 s each on one worker, deadline 1.5 s: the queue is longer than the deadline."""
    async with WorkerPool([config("Slow", options={"step_s": 0.15}, step_deadline_s=1.5)]) as pool:
        results: list[StepResult] = []

        async def one() -> None:
            session = await pool.open("tests.unit.envs.worlds:Slow")
            await session.reset(TASK, 1)
            results.append(await session.step("a"))

        async with anyio.create_task_group() as group:
            for _ in range(12):
                group.start_soon(one)
        assert len(results) == 12


async def test_a_worker_killed_from_outside_is_seen_while_idle() -> None:
    async with WorkerPool([config()]) as pool:
        (pid,) = pool.pids
        os.kill(pid, signal.SIGKILL)
        with anyio.fail_after(40):
            while pool.pids in ([pid], []):
                await pool.changed()
        assert len(await play(pool, ["a", "a"])) == 2


async def test_a_cancelled_call_leaves_the_worker_in_order() -> None:
    async with WorkerPool([config("Slow")]) as pool:
        session = await pool.open("tests.unit.envs.worlds:Slow")
        await session.reset(TASK, 1)
        with anyio.move_on_after(0.005):
            await session.step("never read")
        assert (await session.step("next")).text == "next"


@pytest.mark.parametrize(
    ("world", "options", "path", "said"),
    [
        ("tests.unit.envs.worlds:Counter", {"limits": 3}, "environments.0.options", "Did you mean `limit`"),
        ("tests.unit.envs.worlds:Unfinished", {}, "environments.0.options", "games.zip is missing"),
        ("tests.unit.envs.worlds:Absent", {}, "environments.0.name", "Absent"),
        ("no_such_module:World", {}, "environments.0.name", "no_such_module"),
        ("househld", {}, "environments.0.name", "househld"),
    ],
)
async def test_a_world_that_cannot_be_made_is_a_configuration_error(
    world: str, options: dict[str, Any], path: str, said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        async with WorkerPool([EnvironmentConfig(name=world, options=options)]):
            pytest.fail("started")
    assert caught.value.path == path
    assert said in str(caught.value)


async def test_a_worker_that_dies_or_hangs_at_start_is_an_error_not_a_hang() -> None:
    with pytest.raises(EnvironmentFailed, match="exit code 3 before it was ready"):
        async with WorkerPool([config("Dead")]):
            pytest.fail("started")
    with pytest.raises(EnvironmentFailed, match="at its start is not a message"):
        async with WorkerPool([config("Noisy")]):
            pytest.fail("started")
    with pytest.raises(EnvironmentFailed, match="not ready after"):
        async with WorkerPool([config("Silent")], start_deadline_s=0.8):
            pytest.fail("started")


async def test_waiting_for_a_restart_that_fails_is_an_error(tmp_path: Path) -> None:
    mark = str(tmp_path / "mark")
    async with WorkerPool([config("DiesOnce", options={"mark": mark})]) as pool:
        session = await pool.open("tests.unit.envs.worlds:DiesOnce")
        await session.reset(TASK, 1)
        with pytest.raises(EnvironmentFailed, match="SIGKILL"):
            await session.step("kill")
        with pytest.raises(EnvironmentFailed, match=r"no worker of .* is up: .*FileExistsError"):
            await pool.open("tests.unit.envs.worlds:DiesOnce")


async def test_an_unknown_environment_and_the_callers_own_errors() -> None:
    async def fail() -> None:
        async with WorkerPool([config()]) as pool:
            with pytest.raises(ConfigError, match="no entry is called 'nowhere'"):
                await pool.open("nowhere")
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await fail()


async def test_cancelling_the_block_leaves_nothing() -> None:
    with anyio.CancelScope() as scope:
        async with WorkerPool([config(workers=2)]) as pool:
            pids = pool.pids
            scope.cancel()
            await anyio.Event().wait()
    assert len(pids) == 2
    assert all(gone(pid) for pid in pids)


@pytest.mark.parametrize("steps", range(12))
async def test_a_pool_that_is_left_while_it_starts_leaves_nothing(steps: int) -> None:
    """Cancelled after so many turns of the event loop: while the process is made, or once it is asked to begin."""
    before = _children()

    async def start() -> None:
        async with WorkerPool([config()]):
            await anyio.sleep_forever()

    async with anyio.create_task_group() as group:
        group.start_soon(start)
        for _ in range(steps):
            await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    assert _children() <= before


def _children() -> set[int]:
    """Processes of this one's that are there, dead or alive."""
    own = os.getpid()
    return {int(pid) for path in Path(f"/proc/{own}/task").glob("*/children") for pid in path.read_text().split()}


async def test_workers_die_with_the_pools_process_even_inside_a_call() -> None:
    program = (
        "import anyio, os\n"
        "from tests.unit.envs.test_pool import *\n"
        "async def main():\n"
        "    async with WorkerPool([config(workers=2)]) as pool:\n"
        "        async with anyio.create_task_group() as group:\n"
        "            group.start_soon(play, pool, ['stall'])\n"
        "            await anyio.wait_all_tasks_blocked()\n"
        "            print(*pool.pids, flush=True)\n"
        "            await anyio.wait_all_tasks_blocked()\n"
        "            os.kill(os.getpid(), 9)\n"
        "anyio.run(main)\n"
    )
    done = await anyio.run_process([sys.executable, "-c", program], check=False, stderr=subprocess.DEVNULL)
    pids = [int(pid) for pid in done.stdout.split()]
    assert done.returncode == -signal.SIGKILL
    assert len(pids) == 2
    with anyio.fail_after(40):
        # The kernel gives no event for somebody else's child.
        while not all(gone(pid) or _zombie(pid) for pid in pids):  # noqa: ASYNC110
            await anyio.sleep(0.01)


def _zombie(pid: int) -> bool:
    """Dead, and waiting for the machine's first process to notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_backoff_doubles_for_short_lives_up_to_a_bound() -> None:
    backoff = Backoff(first_s=0.5, longest_s=4.0, steady_s=30.0)
    assert [backoff.after(0.2) for _ in range(5)] == [0.5, 1.0, 2.0, 4.0, 4.0]
    assert backoff.after(31.0) == 0.5
    assert backoff.after(1.0) == 1.0
