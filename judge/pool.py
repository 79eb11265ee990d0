"""The endpoints in use, and the queue for places among them.

consumes: errands that want to send a request. waits for: a place at the endpoint that is worth waiting for. produces:
places, within every limit of their endpoint. unblocked by: a request that ends, a limit that passes, an endpoint that
is attached or detached, or the end of the errand's patience.
"""

from __future__ import annotations

import math
import random
from bisect import insort
from collections.abc import Callable

import anyio

from judge.attached import AttachedEndpoint, Place
from judge.endpoint import Answer, AttemptFailed, Endpoint
from judge.errand import Errand
from judge.router import EndpointLoad, Wish, choose
from judge.standing import EndpointStanding
from judge.tokens import RequestSize
from stream_rl.errors import JudgeFailed

NO_ENDPOINT = "no judge endpoint is attached"
NO_ROOM = "the rate limits leave no room for a request before the deadline"

_ANY = Wish()


class _Waiter:
    """One errand in the queue."""

    def __init__(self, errand: Errand, size: RequestSize, joined_s: float) -> None:
        self.errand = errand
        self.size = size
        self.joined_s = joined_s
        self.called = anyio.Event()  # `place` or `problem` is there
        self.scope = anyio.CancelScope()  # around the wait; its deadline is the waiter's alarm
        self.place: Place | None = None
        self.problem = ""


class EndpointPool:
    """Hands out places. Earlier errands come first; each gets the endpoint with the least expected time to an answer.

    An errand that has no place yet waits as long as answers keep coming in; without any, for one deadline.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._members: list[AttachedEndpoint] = []
        self._queue: list[_Waiter] = []
        self._attached = 0
        self._errands = 0
        self._answer_s = -math.inf  # moment of the last answer

    @property
    def deadline_s(self) -> float:
        """Seconds an ask may take from its first place on: the longest any endpoint allows; 0 without endpoints."""
        return max((m.config.deadline_s for m in self._open()), default=0.0)

    @property
    def configured(self) -> int:
        """Sum of the configured concurrency."""
        return sum(m.config.concurrency for m in self._members)

    def standing(self) -> tuple[EndpointStanding, ...]:
        """How the endpoints are doing, in the order they were attached."""
        return tuple(m.standing() for m in self._members)

    def attach(self, endpoint: Endpoint) -> None:
        """Use one more endpoint from now on."""
        self._members.append(AttachedEndpoint(endpoint, self._attached))
        self._attached += 1
        self._dispatch()

    def detach(self, url: str) -> int:
        """Send nothing more to this address; what is in flight there may end. Returns how many endpoints it had."""
        leaving = [m for m in self._open() if m.config.url == url]
        for member in leaving:
            member.draining = True
        self._forget_drained()
        self._dispatch()
        return len(leaving)

    def serves(self, url: str, model: str) -> bool:
        """Whether such an endpoint is in use and not on its way out."""
        return any(m.config.url == url and m.config.model == model for m in self._open())

    def errand(self, rng: random.Random) -> Errand:
        """A new errand, behind all others."""
        self._errands += 1
        return Errand(self._errands, rng)

    async def place(self, errand: Errand, size: RequestSize) -> Place:
        """The next place for this errand; its time runs from the first one on. Raises `JudgeFailed`."""
        waiter = _Waiter(errand, size, self._clock())
        insort(self._queue, waiter, key=lambda w: w.errand.number)
        delivered = False
        try:
            self._settle_if_hopeless(waiter)
            while not waiter.called.is_set():
                patience_s = self._patience_s(waiter) - self._clock()
                if patience_s <= 0.0:
                    raise JudgeFailed(self._why_not(waiter))
                with anyio.CancelScope(deadline=anyio.current_time() + patience_s) as waiter.scope:
                    self._dispatch()
                    await waiter.called.wait()
            if waiter.place is None:
                raise JudgeFailed(waiter.problem)
            delivered = True
            return waiter.place
        finally:
            if waiter in self._queue:
                self._queue.remove(waiter)
                self._dispatch()
            if waiter.place is not None and not delivered:  # cancelled with the place in hand
                self.give_back(waiter.place, None)

    def spare_place(self, errand: Errand, size: RequestSize, taken: AttachedEndpoint) -> Place | None:
        """A place for a second request beside one at `taken`, if one is free now.

        It is at another endpoint; at the same one if that is the only one: a stalled connection or a lost worker
        behind an address says little about the next request to it.
        """
        now_s = self._clock()
        others = [m for m in self._open() if m is not taken]
        loads = [m.load(now_s, size) for m in others or [taken] if not m.draining]
        choice = choose(errand.wish, [load for load in loads if _takes_now(load, now_s) and not load.down], now_s)
        return self._member(choice.index).take(now_s, size) if choice and choice.now else None

    def give_back(self, place: Place, outcome: Answer | AttemptFailed | None) -> None:
        """The request of this place ended; None: given up before it was answered."""
        now_s = self._clock()
        match outcome:
            case None:
                place.member.abandoned(place, now_s)
            case AttemptFailed():
                place.member.failed(place, outcome, now_s)
            case _:
                self._answer_s = now_s
                place.member.answered(place, outcome, now_s)
        self._forget_drained()
        self._dispatch()

    def _open(self) -> list[AttachedEndpoint]:
        return [m for m in self._members if not m.draining]

    def _member(self, index: int) -> AttachedEndpoint:
        return next(m for m in self._members if m.index == index)

    def _forget_drained(self) -> None:
        self._members = [m for m in self._members if not m.draining or m.in_flight]

    def _patience_s(self, waiter: _Waiter) -> float:
        """The moment until which this waiter waits. One that has begun is ended by its own deadline."""
        if waiter.errand.begun:
            return math.inf
        return max(waiter.joined_s, self._answer_s) + self.deadline_s

    def _why_not(self, waiter: _Waiter) -> str:
        if not self._open():
            return NO_ENDPOINT
        if waiter.errand.problem:
            return waiter.errand.problem
        return next((f"{m.config.url}: {m.problem}" for m in self._open() if m.problem), NO_ROOM)

    def _settle_if_hopeless(self, waiter: _Waiter) -> None:
        now_s = self._clock()
        choice = choose(waiter.errand.wish, [m.load(now_s, waiter.size) for m in self._open()], now_s)
        limit_s = waiter.errand.deadline_s - now_s if waiter.errand.begun else self.deadline_s
        if choice is None or choice.earliest_s >= limit_s:
            self._settle(waiter, None)

    def _settle(self, waiter: _Waiter, place: Place | None) -> None:
        """Call a waiter out of the queue, with a place or without hope of one."""
        self._queue.remove(waiter)
        waiter.place = place
        if place is None:
            waiter.problem = self._why_not(waiter)
        waiter.called.set()

    def _dispatch(self) -> None:
        """Give out every place that is worth taking now, and set one alarm for when time alone changes the choice."""
        now_s = self._clock()
        loads: list[EndpointLoad] = []
        claims: dict[int, int] = {}
        alarm_s, alarmed = math.inf, None
        for waiter in tuple(self._queue):
            if not loads:
                loads = [m.load(now_s, waiter.size) for m in self._open()]
            if not any(_takes_now(load, now_s) for load in loads):
                # Nothing for anybody: those further back need not be looked at.
                choice = choose(_ANY, loads, now_s)
                if choice is None or choice.earliest_s >= self.deadline_s:
                    for hopeless in tuple(self._queue):
                        self._settle(hopeless, None)
                    return
                if choice.look_again_s < alarm_s:
                    alarm_s, alarmed = choice.look_again_s, waiter
                break
            choice = choose(waiter.errand.wish, loads, now_s, claims)
            if choice is None:
                self._settle(waiter, None)
            elif choice.now:
                waiter.errand.begin(now_s, self.deadline_s)
                self._settle(waiter, self._member(choice.index).take(now_s, waiter.size))
                loads = []
            else:
                claims[choice.index] = claims.get(choice.index, 0) + 1
                if choice.look_again_s < alarm_s:
                    alarm_s, alarmed = choice.look_again_s, waiter
        if alarmed is not None:
            alarmed.scope.deadline = min(alarmed.scope.deadline, anyio.current_time() + alarm_s)


def _takes_now(load: EndpointLoad, now_s: float) -> bool:
    return load.free > 0 and load.ready_s <= now_s
