"""Asks a judge about every training rollout of a run again.

consumes: the run's archive. waits for: the judge. produces: one verdict for each rollout, in a results file.
unblocked by: a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import anyio
import anyio.abc
import anyio.to_thread

from stream_rl.app.replay.results import ReplayResults
from stream_rl.observe.archive import Archive, ArchivedGroup
from stream_rl.ports import Judge
from stream_rl.types import Trajectory, Verdict


async def rejudge(
    archive: Archive,
    groups: Sequence[ArchivedGroup],
    judge: Judge,
    results: ReplayResults,
    *,
    limit: int,
    workers: int,
    heard: Callable[[Verdict], None],
) -> None:
    """Judge the first `limit` valid rollouts of `groups`, `workers` at once; `heard` is told each verdict.

    In memory are those being judged and one group that waits.
    """
    disk = anyio.CapacityLimiter(1)  # archive and results are used by one thread at a time
    send, receive = anyio.create_memory_object_stream[Trajectory](0)

    async def feed() -> None:
        left = limit
        async with send:
            for group in groups:
                if left <= 0:
                    return
                found = await anyio.to_thread.run_sync(archive.trajectories, group.group_id, limiter=disk)
                for trajectory in found[:left]:
                    await send.send(trajectory)
                left -= len(found)

    async def work(queue: anyio.abc.ObjectReceiveStream[Trajectory]) -> None:
        async with queue:
            async for trajectory in queue:
                verdict = await judge.tag(trajectory)
                await anyio.to_thread.run_sync(results.add, trajectory.group_id, verdict, limiter=disk)
                heard(verdict)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(feed)
        for _ in range(workers):
            tasks.start_soon(work, receive.clone())
        receive.close()
