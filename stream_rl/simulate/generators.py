"""Producers: a generator that many rollouts share, leased whole groups. No clock: the model says when it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush

_SAME = 1e-9  # turns: ends closer than this are one event


class Producer:
    """Processor sharing in virtual time, which counts turns.

    All rollouts of a producer make turns at the same rate, so one that starts at virtual time v with k turns to make
    ends at v + k, whoever comes or goes meanwhile. `pace` is the real time of a turn; it changes with the number of
    rollouts, and everything that is known of the future with it. Hence O(log n) for each rollout, not for each turn.

    >>> p = Producer(pace=1.0)
    >>> p.add(0.0, [3.0, 5.0], group=7)
    >>> p.next_s()
    3.0
    >>> p.ended(3.0)
    [7]
    >>> p.repace(3.0, 0.5); p.next_s()
    4.0
    """

    __slots__ = (
        "_jobs",
        "_progress",
        "_since_s",
        "busy_s",
        "held",
        "held_groups",
        "pace",
        "slowdown",
        "stamp",
        "turns",
        "weight",
        "work_s",
    )

    def __init__(self, pace: float, weight: int = 1) -> None:
        self.weight = weight  # rollouts that begin and end together
        self._jobs: list[tuple[float, int]] = []  # virtual end, group
        self._progress = 0.0  # virtual time at `_since_s`
        self._since_s = 0.0  # in the future while it is paused
        self.pace = pace  # seconds of a turn
        self.slowdown = 1.0  # how many times as long as alone that is
        self.busy_s = 0.0  # with any rollout, and not paused
        self.work_s = 0.0  # the same, had it never been slowed
        self.turns = 0.0  # made by all rollouts
        self.held = 0  # rollouts of the groups leased to it
        self.held_groups = 0  # groups leased to it
        self.stamp = 0  # of the last event announced for it: earlier ones are void

    @property
    def rollouts(self) -> int:
        """Rollouts it plays now."""
        return len(self._jobs) * self.weight

    def add(self, now_s: float, turns: Sequence[float], group: int) -> None:
        """Rollouts of `group` begin, `weight` for each entry, with so many turns each."""
        self._settle(now_s)
        for count in turns:
            heappush(self._jobs, (self._progress + count, group))

    def repace(self, now_s: float, pace: float, slowdown: float = 1.0) -> None:
        """From now on a turn takes `pace` seconds, which is `slowdown` times as long as it would take alone."""
        self._settle(now_s)
        self.pace = pace
        self.slowdown = slowdown

    def pause(self, now_s: float, until_s: float) -> None:
        """Nothing is played until then."""
        self._settle(now_s)
        self._since_s = max(self._since_s, until_s)

    def next_s(self) -> float:
        """When the next rollout ends, unless something changes. It must have one."""
        return self._since_s + (self._jobs[0][0] - self._progress) * self.pace

    def ended(self, now_s: float) -> list[int]:
        """Groups of the rollouts that end now, one entry for each; called at `next_s`."""
        self._settle(now_s)
        jobs = self._jobs
        self._progress = limit = jobs[0][0]
        limit += _SAME
        groups = []
        while jobs and jobs[0][0] <= limit:
            groups.append(heappop(jobs)[1])
        return groups

    def played_s(self, now_s: float) -> float:
        """Seconds until now in which it played any rollout."""
        self._settle(now_s)
        return self.busy_s

    def _settle(self, now_s: float) -> None:
        since = self._since_s
        if now_s > since:
            if self._jobs:
                turns = (now_s - since) / self.pace
                self._progress += turns
                self.turns += turns * self.rollouts
                self.busy_s += now_s - since
                self.work_s += (now_s - since) / self.slowdown
            self._since_s = now_s


class Room:
    """Which producer takes the next group: the one with most free places, as the orchestrator's fleet chooses.

    A group larger than a producer's whole capacity goes to an idle one. O(log n) for each choice.
    """

    def __init__(self, producers: Sequence[Producer], capacity: int) -> None:
        self._producers = producers
        self._capacity = capacity
        self._heap = [(-capacity, i) for i in range(len(producers))]

    def take(self, size: int) -> int | None:
        """The number of a producer that now holds `size` rollouts more; None: nobody has room."""
        heap, producers = self._heap, self._producers
        while heap:
            free, i = heap[0]
            producer = producers[i]
            if -free != self._capacity - producer.held:
                heappop(heap)
                continue
            if -free < size and producer.held_groups:
                return None
            heappop(heap)
            producer.held += size
            producer.held_groups += 1
            heappush(heap, (producer.held - self._capacity, i))
            return i
        return None

    def give_back(self, i: int, size: int) -> None:
        """A group of producer `i` is closed."""
        producer = self._producers[i]
        producer.held -= size
        producer.held_groups -= 1
        heappush(self._heap, (producer.held - self._capacity, i))


class Paces:
    """Seconds of a turn by number of rollouts, computed once for each."""

    def __init__(self, of: Callable[[int], float]) -> None:
        self._of = of
        self._known = [of(1)]

    def __getitem__(self, rollouts: int) -> float:
        """`rollouts` >= 1."""
        known = self._known
        while len(known) < rollouts:
            known.append(self._of(len(known) + 1))
        return known[rollouts - 1]
