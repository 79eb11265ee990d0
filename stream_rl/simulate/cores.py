"""Cores that all roles share: everybody computes, nobody gets a whole one. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


def slowdown(demands: Iterable[float], cores: int) -> float:
    """By what factor everything takes longer when `demands` (cores each role would keep busy) meet `cores` of them.

    Fair shares: roles that ask for more than there is are all slowed alike. 0 cores: every role has its own devices.
    """
    return max(1.0, sum(demands) / cores) if cores else 1.0


def generator_demand(rollouts: int, cycle_s: float, *, turn_cpu_s: float, threads: int) -> float:
    """Cores that a producer keeps busy while it plays `rollouts`, each of which takes `cycle_s` for a turn alone.

    The generator's own threads always compute; what surrounds it (producer, worlds, orchestrator, judges) uses
    `turn_cpu_s` of a core for every turn.
    """
    if rollouts == 0:
        return 0.0
    return threads + (turn_cpu_s * rollouts / cycle_s if cycle_s else 0.0)


class Sharing(msgspec.Struct, frozen=True, kw_only=True):
    """Who shares the cores of a run that was measured."""

    cores: int  # at least 1
    producers: int  # each with a generator
    threads: int  # of a generator
    learner: int  # cores that the learner keeps busy while it computes
    turn_cpu_s: float  # around the generators, of a turn

    def alone_s(self, seconds: float, rollouts: float, beside_learner: float) -> float:
        """What a turn that took `seconds` takes when everybody has cores enough: the inverse of `slowdown`.

        rollouts: that each producer played then; beside_learner: share of the turn in which the learner computed

        With x the time alone, the demand is D(x) = producers * (threads + rollouts * turn_cpu_s / x) + learner, and
        seconds = x * max(1, D(x) / cores): a straight line in x where there is too little.

        >>> sharing = Sharing(cores=2, producers=1, threads=1, learner=1, turn_cpu_s=0.01)
        >>> sharing.alone_s(0.25, 10, 1.0)  # 1 + 10 * 0.01 / 0.2 + 1 = 2.5 cores wanted, so 1.25 times as long
        0.2
        """
        constant = self.producers * self.threads + self.learner * beside_learner
        around_s = self.producers * self.turn_cpu_s * rollouts
        if constant * seconds + around_s <= self.cores * seconds:
            return seconds
        return max(0.0, (self.cores * seconds - around_s) / constant)
