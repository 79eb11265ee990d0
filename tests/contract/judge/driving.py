"""Many taggings at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import anyio

from judge.client import OpenAIJudge
from stream_rl.types import Trajectory, Verdict
from tests.unit.judge.builders import CLEAN, trajectory


async def nothing(done: int) -> None:
    """No interest in progress."""


async def tag_all(
    judge: OpenAIJudge, count: int, *, workers: int, progress: Callable[[int], Awaitable[None]] = nothing
) -> list[Verdict]:
    """Tag `count` trajectories, `workers` at a time. `progress` hears how many are done, and may change things."""
    waiting = iter([trajectory(CLEAN, f"g/{i}") for i in range(count)])
    verdicts: list[Verdict] = []

    async def work(queue: Iterator[Trajectory]) -> None:
        for one in queue:
            verdicts.append(await judge.tag(one))
            await progress(len(verdicts))

    async with anyio.create_task_group() as group:
        for _ in range(workers):
            group.start_soon(work, waiting)
    return verdicts


def resident_bytes() -> int:
    """Memory of this process that is in use."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096
