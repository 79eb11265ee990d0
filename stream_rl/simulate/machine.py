"""Producers and learner on their devices, or on cores they share: how fast everybody is, and what ends when."""

from __future__ import annotations

from collections.abc import Sequence

from stream_rl.config import Config
from stream_rl.simulate.cores import generator_demand, slowdown
from stream_rl.simulate.generators import Paces, Producer, Room
from stream_rl.simulate.learner import Learner
from stream_rl.simulate.profile import Profile
from stream_rl.simulate.schedule import Schedule


class Machine:
    """Whoever begins or ends anything on it changes the pace of the others, where cores are shared."""

    def __init__(
        self, config: Config, profile: Profile, paces: Paces, learner: Learner, schedule: Schedule, *, weight: int
    ) -> None:
        """`paces`: of a producer that has its devices for itself; `weight`: rollouts that end together."""
        self.producers = [Producer(paces[1], weight) for _ in range(config.generate.producers)]
        self._room = Room(self.producers, config.generate.concurrency)
        self._paces = paces
        self._learner = learner
        self._schedule = schedule
        self._cores = profile.cores
        g = profile.generator
        self._threads = config.generate.threads
        self._turn_cpu_s = g.turn_cpu_s or max(0.0, g.cores - self._threads) * g.rollout_s
        self._size = config.groups.size
        self._learner_demand = config.learner.ranks * config.learner.threads
        self._demands = [0.0] * len(self.producers)
        self._slowdown = 1.0

    def choose(self) -> int | None:
        """A producer that takes one more group; None: nobody has room."""
        return self._room.take(self._size)

    def play(self, i: int, turns: Sequence[float], group: int) -> None:
        """Rollouts of a group begin on producer `i`."""
        self.producers[i].add(self._schedule.now_s, turns, group)
        self._changed(i)

    def ended(self, i: int) -> list[int]:
        """Groups of the rollouts of producer `i` that end now; `settle` must follow."""
        return self.producers[i].ended(self._schedule.now_s)

    def settle(self, i: int) -> None:
        """What ended on producer `i` has been dealt with."""
        self._changed(i)

    def give_back(self, i: int) -> None:
        """A group of producer `i` is closed."""
        self._room.give_back(i, self._size)

    def pause(self, until_s: float) -> None:
        """No producer plays until then."""
        for i, producer in enumerate(self.producers):
            producer.pause(self._schedule.now_s, until_s)
            self._announce(i)

    def cpu_s(self, now_s: float) -> dict[str, float]:
        """CPU seconds until now: of the generators while they play, and of what surrounds them."""
        for producer in self.producers:
            producer.played_s(now_s)
        return {
            "generators": self._threads * sum(p.work_s for p in self.producers),
            "around": self._turn_cpu_s * sum(p.turns for p in self.producers),
        }

    def learner_changed(self) -> None:
        """The learner began or ended an update."""
        if self._cores:
            self._share()
        self._announce_learner()

    def _changed(self, i: int) -> None:
        producer = self.producers[i]
        rollouts = producer.rollouts
        if self._cores:
            self._demands[i] = generator_demand(
                rollouts,
                self._paces[max(1, rollouts)],
                turn_cpu_s=self._turn_cpu_s,
                threads=self._threads,
            )
            self._share(i)
        elif rollouts:
            producer.repace(self._schedule.now_s, self._paces[rollouts])
        self._announce(i)

    def _share(self, changed: int | None = None) -> None:
        """Give everybody the fair share of the cores. `changed`: a producer that has more or fewer rollouts."""
        now_s = self._schedule.now_s
        own = self._learner_demand if self._learner.computing else 0
        factor = slowdown([*self._demands, own], self._cores)
        moved = factor != self._slowdown
        self._slowdown = factor
        for i, producer in enumerate(self.producers):
            if producer.rollouts and (moved or i == changed):
                producer.repace(now_s, self._paces[producer.rollouts] * factor, factor)
                self._announce(i)
        if moved:
            self._learner.repace(now_s, factor)
            self._announce_learner()

    def _announce(self, i: int) -> None:
        producer = self.producers[i]
        producer.stamp += 1
        if producer.rollouts:
            self._schedule.at(producer.next_s(), "rollouts", i, producer.stamp)

    def _announce_learner(self) -> None:
        learner = self._learner
        learner.stamp += 1
        if learner.computing:
            self._schedule.at(learner.end_s, "trained", 0, learner.stamp)
