from __future__ import annotations

import anyio

from stream_rl.observe.loop_lag import LoopLag
from tests.unit.orchestrator.virtual import clock


def test_mean_and_largest_since_the_last_lap() -> None:
    lag = LoopLag()
    assert lag.lap() == {"mean_s": None, "max_s": None}
    for late_s in (0.0, 0.5, -1e-9, 1.0):
        lag.observe(late_s)
    assert lag.lap() == {"mean_s": 0.375, "max_s": 1.0}
    assert lag.lap() == {"mean_s": None, "max_s": None}


def test_a_call_that_blocks_the_loop_is_seen() -> None:
    """Timers every 0.5 s. At 1.25 the clock moves on by 2 s, as if a call had blocked: the next timer is 2 s late."""
    ahead_s = 0.0

    async def main() -> dict[str, float | None]:
        nonlocal ahead_s
        lag = LoopLag(0.5, lambda: anyio.current_time() + ahead_s)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lag.run)
            await anyio.sleep(1.25)
            ahead_s = 2.0  # a virtual loop cannot be blocked: its clock jumps instead
            await anyio.sleep(0.5)
            tasks.cancel_scope.cancel()
        return lag.lap()

    found = clock.run(main)
    assert found["max_s"] == 2.0
