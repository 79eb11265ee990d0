"""How long a turn takes beside others: a generator that is shared, a world that answers, workers that are few. Pure."""

from __future__ import annotations

import math


def turn_cycle_s(rollouts: int, *, turn_s: float, rollout_s: float, step_s: float, worker_s: float = 0.0) -> float:
    """Seconds between two actions of one rollout while `rollouts` >= 1 are played side by side.

    turn_s, rollout_s: with m turns in the generator each takes turn_s + m * rollout_s
    step_s: a rollout is with its world for this long, where it does not slow the generator
    worker_s: seconds of the busiest world's workers for a turn of all rollouts' mix, divided by their number

    Of n rollouts, m = n * g / (g + step_s) are in the generator (Little's law), where g = turn_s + m * rollout_s is
    their time there: a quadratic equation for m. Workers bound the rate of turns: a cycle takes at least n * worker_s.
    """
    n = rollouts
    if rollout_s == 0:
        generator_s = turn_s
    else:
        b = turn_s + step_s - n * rollout_s
        m = (-b + math.sqrt(b * b + 4 * rollout_s * n * turn_s)) / (2 * rollout_s)
        generator_s = turn_s + m * rollout_s
    return max(generator_s + step_s, n * worker_s)
