"""Cores that all roles share: everybody computes, nobody gets a whole one. Pure."""

from __future__ import annotations

from collections.abc import Iterable


def slowdown(demands: Iterable[float], cores: int) -> float:
    """By what factor everything takes longer when `demands` (cores each role would keep busy) meet `cores` of them.

    Fair shares: roles that ask for more than there is are all slowed alike. 0 cores: every role has its own devices.
    """
    return max(1.0, sum(demands) / cores) if cores else 1.0


def generator_demand(rollouts: int, cycle_s: float, *, rollout_s: float, cores: float, threads: int) -> float:
    """Cores that a producer keeps busy while it plays `rollouts`.

    The generator's own threads always compute; what surrounds it (worlds, messages, the ledger) goes with the rate of
    turns, which is at most 1 / `rollout_s`. `cores` is the demand at that rate.
    """
    if rollouts == 0:
        return 0.0
    load = min(1.0, rollout_s * rollouts / cycle_s) if cycle_s else 1.0
    return threads + max(0.0, cores - threads) * load
