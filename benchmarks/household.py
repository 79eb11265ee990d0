"""How many household steps one process makes a second: random admissible play, resets included.

python -m benchmarks.household [--steps 50000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time

from envs.household.world import Household
from stream_rl.types import Task


def one_round(steps: int, seed: int) -> float:
    """Steps a second over `steps` steps; the player's choice is not counted."""
    rng = random.Random(seed)
    world = Household(max_turns=20)
    spent = 0.0
    done, index = True, seed * 1_000_000
    for _ in range(steps):
        if done:
            began = time.perf_counter()
            world.reset(Task(environment="household", split="train", index=index), 0)
            spent += time.perf_counter() - began
            index += 1
        action = rng.choice(world.admissible())
        began = time.perf_counter()
        done = world.step(action).done
        spent += time.perf_counter() - began
    return steps / spent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    rates = [one_round(options.steps, seed) for seed in range(options.rounds)]
    print(f"steps/s: median {statistics.median(rates):,.0f}, from {min(rates):,.0f} to {max(rates):,.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
