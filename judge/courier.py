"""Gets one prompt answered: places, attempts, second attempts for late answers, and the deadline over all of it."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from judge.attached import AttachedEndpoint, Place
from judge.endpoint import Answer, AttemptFailed
from judge.errand import Errand
from judge.hedge import HedgeBudget
from judge.pool import EndpointPool
from judge.request import Prompt
from judge.retry import attempt_s
from judge.tokens import RequestSize
from stream_rl.errors import JudgeFailed


class Courier:
    """Carries prompts to the endpoints of a pool.

    hedge_share: second requests for late answers, as a share of all others
    """

    def __init__(self, pool: EndpointPool, *, hedge_share: float, clock: Callable[[], float]) -> None:
        self._pool = pool
        self._hedges = HedgeBudget(hedge_share)
        self._clock = clock

    async def fetch(self, errand: Errand, prompt: Prompt, quotation: str) -> tuple[Answer, AttachedEndpoint]:
        """The first answer of any endpoint before the errand's deadline. Raises `JudgeFailed`."""
        size = RequestSize(chars=len(prompt.system) + len(quotation), max_tokens=prompt.max_tokens)
        place = None if errand.begun else await self._pool.place(errand, size)
        with anyio.CancelScope(deadline=anyio.current_time() + errand.deadline_s - self._clock()):
            while True:
                place = place or await self._pool.place(errand, size)
                try:
                    return await self._attempt(errand, place, prompt, quotation)
                except AttemptFailed:  # the errand knows; another place, or none, is the answer
                    place = None
        last = f"; last, {errand.problem}" if errand.problem else ""
        raise JudgeFailed(f"no answer within the deadline of {errand.seconds:g} s{last}")

    async def _attempt(
        self, errand: Errand, place: Place, prompt: Prompt, quotation: str
    ) -> tuple[Answer, AttachedEndpoint]:
        """One request, and a second one if the answer is late. Raises the last `AttemptFailed` if all fail."""
        self._hedges.earn()
        late_s = place.member.p95_s
        if late_s is None or not self._hedges.enabled:
            return await self._send(errand, place, prompt, quotation), place.member
        answers: list[tuple[Answer, AttachedEndpoint]] = []
        failures: list[AttemptFailed] = []
        ended = anyio.Event()

        async def send(to: Place) -> None:
            try:
                answers.append((await self._send(errand, to, prompt, quotation), to.member))
            except AttemptFailed as failure:
                failures.append(failure)
            else:
                group.cancel_scope.cancel()
            ended.set()

        async with anyio.create_task_group() as group:
            group.start_soon(send, place)
            while not ended.is_set():
                with anyio.move_on_after(late_s):
                    await ended.wait()
                    break
                late_s *= 2.0  # in case there is no budget or no place now
                second = self._pool.spare_place(errand, place.size, place.member) if self._hedges.available else None
                if second is not None:
                    self._hedges.spend()
                    group.start_soon(send, second)
                    break
        if answers:
            return answers[0]
        raise failures[-1]

    async def _send(self, errand: Errand, place: Place, prompt: Prompt, quotation: str) -> Answer:
        """Use a place, and give it back whatever happens. Raises `AttemptFailed`."""
        member = place.member
        outcome: Answer | AttemptFailed | None = None
        timeout_s = min(attempt_s(errand.deadline_s - self._clock()), member.config.deadline_s)
        try:
            outcome = await member.endpoint.ask(prompt, quotation, timeout_s)
        except AttemptFailed as failure:
            outcome = failure
            errand.failed(member.index, member.config.url, failure, self._clock())
            raise
        finally:
            self._pool.give_back(place, outcome)
        return outcome
