"""The judging stage: bounded work between production and selection.

consumes: questions about valid trajectories, in any order. waits for: judge endpoints. produces: one answer each.
unblocked by: an endpoint answering; with `required = False`, the deadline of the judge.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable

import anyio
import anyio.abc
import msgspec

from stream_rl.observe.states import ActivityClock, SlotClock
from stream_rl.ports import Judge
from stream_rl.types import Scores, Trajectory, Verdict

_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 15.0
QUEUED, ASKING, WAITING = "queued", "asking", "waiting"


class Question(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What a judge is asked about one trajectory."""

    trajectory: Trajectory  # valid
    criteria: tuple[str, ...] = ()  # to be scored; none: tag the whole vocabulary
    again: bool = False  # a second opinion on what was tagged already: nobody waits for it


Answer = Verdict | Scores


class JudgingStage:
    """Asks what is submitted with a fixed number of workers.

    An answer for which no endpoint was reached at all is asked for again after a growing pause while `required`: the
    run waits for its judges instead of learning from silence. What waits is bounded by the gate's permits.
    """

    def __init__(
        self,
        judge: Judge,
        *,
        second: Judge | None = None,
        workers: int,
        required: bool,
        deliver: Callable[[Question, Answer], Awaitable[None]],
        trouble: Callable[[str | None], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing runs yet.

        second: gives second opinions: the same judge without what it remembers; None: `judge`
        deliver: takes each answer with its question
        trouble: hears what is wrong, None when it is over
        """
        self._judge = judge
        self._second = second or judge
        self._workers = workers
        self._required = required
        self._deliver = deliver
        self._trouble = trouble
        self._send, self._receive = anyio.create_memory_object_stream[Question](math.inf)
        self._down = False
        # The stage's own time, and that of its questions: one waits while no endpoint answers it.
        self._activities = ActivityClock([ASKING, WAITING], "idle", clock)
        self._questions = SlotClock([QUEUED, ASKING, WAITING], "idle", size=0, clock=clock)

    @property
    def waiting(self) -> int:
        """Questions no worker has taken yet."""
        return self._send.statistics().current_buffer_used

    def laps(self) -> tuple[dict[str, float], dict[str, float]]:
        """Seconds of the stage by state since the last call, and question-seconds by state."""
        return self._activities.lap(), self._questions.lap()

    def submit(self, question: Question) -> None:
        """Queue one question."""
        self._send.send_nowait(question)
        self._questions.move("idle", QUEUED)

    def close(self) -> None:
        """No more will be submitted; `run` ends when the queue is empty."""
        self._send.close()

    async def run(self) -> None:
        """Work until closed."""
        async with anyio.create_task_group() as tasks:
            for _ in range(self._workers):
                tasks.start_soon(self._work, self._receive.clone())
            self._receive.close()

    async def _work(self, queue: anyio.abc.ObjectReceiveStream[Question]) -> None:
        async with queue:
            async for question in queue:
                self._questions.move(QUEUED, "idle")
                await self._deliver(question, await self._answer(question))

    async def _answer(self, question: Question) -> Answer:
        wait_s = _FIRST_WAIT_S
        while True:
            with self._activities.during(ASKING), self._questions.during(ASKING):
                answer = await self._ask(question)
            if not answer.abstained or answer.endpoint or not self._required:
                self._say(None)
                return answer
            self._say("no judge endpoint answers; the run waits for one (judge.required = false goes on without)")
            with self._activities.during(WAITING), self._questions.during(WAITING):
                await anyio.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    async def _ask(self, question: Question) -> Answer:
        if question.criteria:
            return await self._judge.score(question.trajectory, question.criteria)
        judge = self._second if question.again else self._judge
        return await judge.tag(question.trajectory)

    def _say(self, problem: str | None) -> None:
        if (problem is not None) != self._down:
            self._down = problem is not None
            self._trouble(problem)
