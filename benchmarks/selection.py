"""How long a selection takes on full-size profiles, beside sorting the numbers of all of them.

    python -m benchmarks.selection [--rounds 9]

Profiles have 118 numbers (59 rubrics), as 8 tagged rollouts give them. Every round times every selection and the
sort, so that what else the machine does falls on both: the ratio of a round compares machines and versions, the
milliseconds are what an update waits. Median with the smallest and largest round. Exits with 1 when a median is above
the limit.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from stream_rl.orchestrator.selection import (
    Candidate,
    select_mmr,
    select_random,
    select_reward_variance,
    select_rised,
)
from stream_rl.rubrics.profile import Float64, normalise

NUM_RUBRICS, ROLLOUTS = 59, 8
SIZES = ((64, 128, 5.0), (1024, 2048, 250.0))  # groups selected, candidates, limit in ms

Select = Callable[[Sequence[Candidate], int], list[str]]
SELECTIONS: dict[str, Select] = {
    "rised": lambda pool, count: select_rised(pool, count, redundancy=0.5, rotation=0),
    "mmr": lambda pool, count: select_mmr(pool, count, redundancy=0.5),
    "reward_variance": select_reward_variance,
    "random": lambda pool, count: select_random(pool, count, seed=0),
}


def candidates(count: int, seed: int) -> list[Candidate]:
    """Groups of three environments, each with habits of its own and some groups without a tag."""
    rng = np.random.default_rng(seed)
    habits = rng.beta(0.6, 2.0, (3, 2 * NUM_RUBRICS))
    pool = []
    for i in range(count):
        rates: Float64 = rng.binomial(ROLLOUTS, habits[i % 3]) / ROLLOUTS
        pool.append(
            Candidate(
                group_id=f"g{i:05d}",
                environment="xyz"[i % 3],
                vector=normalise(rates * (rng.random() > 0.02)),
                reward_std=float(rng.binomial(ROLLOUTS, 0.5)) / ROLLOUTS,
            )
        )
    return pool


def seconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def measure(pool: Sequence[Candidate], count: int, rounds: int) -> dict[str, tuple[list[float], list[float]]]:
    """Milliseconds, and ratios to the sort, of each round by selection."""
    numbers = np.concatenate([c.vector for c in pool])
    found: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in SELECTIONS}
    for _ in range(rounds):
        sort_s = statistics.median(seconds(partial(np.sort, numbers)) for _ in range(3))
        for name, select in SELECTIONS.items():
            taken_s = seconds(partial(select, pool, count))
            found[name][0].append(1e3 * taken_s)
            found[name][1].append(taken_s / sort_s)
    return found


def spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):8.2f} {min(values):8.2f} {max(values):8.2f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    columns = f"{'min':>8} {'max':>8}"
    print(f"{'selection':>16} {'groups':>12} {'ms':>8} {columns} {'limit':>7} {'ratio':>8} {columns}")
    slow = False
    for count, total, limit_ms in SIZES:
        for name, (times, ratios) in measure(candidates(total, seed=total), count, rounds).items():
            slow = slow or statistics.median(times) > limit_ms
            groups = f"{count} of {total}"
            print(f"{name:>16} {groups:>12} {spread(times)} {limit_ms:7.0f} {spread(ratios)}")
    return int(slow)


if __name__ == "__main__":
    raise SystemExit(main())
