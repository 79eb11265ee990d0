from __future__ import annotations

import threading

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from tests.unit.orchestrator.virtual.clock import StandsStill, run, running_loop


def test_sleeping_takes_virtual_time_and_wakes_in_order() -> None:
    async def main() -> list[tuple[str, float]]:
        log: list[tuple[str, float]] = []

        async def sleeper(name: str, seconds: float) -> None:
            await anyio.sleep(seconds)
            log.append((name, anyio.current_time()))

        async with anyio.create_task_group() as tasks:
            for name, seconds in (("c", 3000.0), ("a", 1000.0), ("b", 2000.0)):
                tasks.start_soon(sleeper, name, seconds)
        return log

    assert run(main) == [("a", 1000.0), ("b", 2000.0), ("c", 3000.0)]


def test_deadlines_are_virtual() -> None:
    async def main() -> float:
        with anyio.move_on_after(50):
            await anyio.sleep_forever()
        return anyio.current_time()

    assert run(main) == 50.0


def test_time_stands_still_while_a_thread_works() -> None:
    """The timer is due at 5 s; a thread that is called at 0 s comes first, however long it takes."""

    async def main() -> list[str]:
        log: list[str] = []
        slow = threading.Event()

        async def timer() -> None:
            await anyio.sleep(5)
            log.append(f"timer at {anyio.current_time():g}")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(timer)
            with running_loop().outside():
                await anyio.to_thread.run_sync(slow.wait, 0.01)
            log.append(f"thread at {anyio.current_time():g}")
        return log

    assert run(main) == ["thread at 0", "timer at 5"]


@pytest.mark.parametrize("threaded", [True, False])
def test_a_call_outside_returns_after_all_that_can_happen_at_once(threaded: bool) -> None:
    async def main() -> list[str]:
        log: list[str] = []

        async def busy() -> None:
            for step in range(5):
                await anyio.lowlevel.checkpoint()
                log.append(str(step))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(busy)
            with running_loop().outside():
                if threaded:
                    await anyio.to_thread.run_sync(int)
                else:
                    await running_loop().rest()
            log.append("called")
        return log

    assert run(main) == ["0", "1", "2", "3", "4", "called"]


def test_a_program_that_can_never_go_on_is_found_at_once() -> None:
    async def main() -> None:
        await anyio.sleep(7)
        await anyio.Event().wait()

    with pytest.raises(StandsStill, match=r"at 7\.000 s"):
        run(main)
