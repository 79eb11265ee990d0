"""The judging stage: bounded work between production and selection.

consumes: valid trajectories, in any order. waits for: judge endpoints. produces: one verdict each.
unblocked by: an endpoint answering; with `required = False`, the deadline of the judge.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

import anyio
import anyio.abc

from stream_rl.ports import Judge
from stream_rl.types import Trajectory, Verdict

_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 15.0


class JudgingStage:
    """Tags what is submitted with a fixed number of workers.

    A verdict in which no endpoint answered at all is asked again after a growing pause while `required`: the run
    waits for its judges instead of learning from silence. What waits is bounded by the gate's permits.
    """

    def __init__(
        self,
        judge: Judge,
        *,
        workers: int,
        required: bool,
        deliver: Callable[[Trajectory, Verdict], Awaitable[None]],
        trouble: Callable[[str | None], None],
    ) -> None:
        """`deliver` takes each verdict with what it is about; `trouble` hears what is wrong, None when it is over."""
        self._judge = judge
        self._workers = workers
        self._required = required
        self._deliver = deliver
        self._trouble = trouble
        self._send, self._receive = anyio.create_memory_object_stream[Trajectory](math.inf)
        self._down = False

    @property
    def waiting(self) -> int:
        """Trajectories no worker has taken yet."""
        return self._send.statistics().current_buffer_used

    def submit(self, trajectory: Trajectory) -> None:
        """Queue one trajectory."""
        self._send.send_nowait(trajectory)

    def close(self) -> None:
        """No more will be submitted; `run` ends when the queue is empty."""
        self._send.close()

    async def run(self) -> None:
        """Work until closed."""
        async with anyio.create_task_group() as tasks:
            for _ in range(self._workers):
                tasks.start_soon(self._work, self._receive.clone())
            self._receive.close()

    async def _work(self, queue: anyio.abc.ObjectReceiveStream[Trajectory]) -> None:
        async with queue:
            async for trajectory in queue:
                await self._deliver(trajectory, await self._tag(trajectory))

    async def _tag(self, trajectory: Trajectory) -> Verdict:
        wait_s = _FIRST_WAIT_S
        while True:
            verdict = await self._judge.tag(trajectory)
            if not verdict.abstained or verdict.endpoint or not self._required:
                self._say(None)
                return verdict
            self._say("no judge endpoint answers; the run waits for one (judge.required = false goes on without)")
            await anyio.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    def _say(self, problem: str | None) -> None:
        if (problem is not None) != self._down:
            self._down = problem is not None
            self._trouble(problem)
