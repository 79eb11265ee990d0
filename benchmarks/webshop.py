"""How fast a large WebShop loads, searches and plays in one process, and what it weighs.

python -m benchmarks.webshop [--products 20000] [--words 150] [--searches 500] [--episodes 500]
"""

from __future__ import annotations

import argparse
import gc
import itertools
import random
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from envs.webshop.data import RawData, read_data, write_data
from envs.webshop.player import Player
from envs.webshop.search import MOST_RESULTS
from envs.webshop.shop import Shop, open_shop
from envs.webshop.synthetic import synthetic_data
from envs.webshop.world import WebShop
from stream_rl.types import Task

MIB = 1 << 20


def resident_mib() -> float:
    """Memory of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / MIB


def searches(shop: Shop, count: int) -> list[float]:
    """Milliseconds of CPU of searches for whole instructions and for a few of their words, none remembered."""
    rng = random.Random(0)
    spent = []
    for goal in rng.choices(shop.goals, k=count):
        words = goal.instruction.split()
        query = goal.instruction if rng.random() < 0.5 else " ".join(rng.sample(words, min(5, len(words))))
        began = time.thread_time()
        shop.search.index.search(query, MOST_RESULTS)
        spent.append(1000 * (time.thread_time() - began))
    return spent


def play(world: WebShop, episodes: int) -> tuple[float, float]:
    """Milliseconds of CPU a step, searches included, and the mean score of the scripted player."""
    steps, score, spent = 0, 0.0, 0.0
    for index in range(episodes):
        began = time.thread_time()
        text = world.reset(Task(environment="webshop", split="train", index=index), 0).text
        spent += time.thread_time() - began
        player = Player(text, random.Random(index))
        for _ in range(15):
            action = player.act()
            began = time.thread_time()
            result = world.step(action)
            spent += time.thread_time() - began
            steps += 1
            player.observe(action, result.text)
            if result.done:
                break
        score += result.score
    return 1000 * spent / steps, score / episodes


def long_winded(raw: RawData, words: int) -> RawData:
    """The same products, with descriptions as long and as varied as those of a real shop (Zipf's law, 50,000 words)."""
    rng = random.Random(0)
    vocabulary = ["".join(rng.choices("abcdefghiklmnoprstuvw", k=rng.randint(3, 10))) for _ in range(50_000)]
    weights = list(itertools.accumulate(1 / rank for rank in range(1, len(vocabulary) + 1)))
    longer = [
        msgspec.structs.replace(
            product, full_description=" ".join(rng.choices(vocabulary, cum_weights=weights, k=words))
        )
        for product in raw.products
    ]
    return msgspec.structs.replace(raw, products=longer)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--products", type=int, default=20_000)
    parser.add_argument("--words", type=int, default=150, help="words of a description")
    parser.add_argument("--searches", type=int, default=500)
    parser.add_argument("--episodes", type=int, default=500)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_data(long_winded(synthetic_data(options.products, 0), options.words), Path(folder))
        gc.collect()
        before = resident_mib()
        began, cpu = time.perf_counter(), time.process_time()
        read_data(folder)
        decoded = time.process_time() - cpu
        began, cpu = time.perf_counter(), time.process_time()
        shop = open_shop(folder, 0, 0)
        print(
            f"{len(shop.catalogue)} products, {len(shop.goals)} goals: loaded in {time.perf_counter() - began:.2f} s "
            f"({time.process_time() - cpu:.2f} s of CPU, {decoded:.2f} s of it decoding)"
        )
        gc.collect()
        arrays = shop.search.index.num_bytes / MIB
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"memory: {resident_mib() - before:.0f} MiB more, {arrays:.1f} of them arrays of the index; peak {peak:.0f}"
        )
        spent = sorted(searches(shop, options.searches))
        slow = spent[int(0.95 * len(spent))]
        print(f"search: median {statistics.median(spent):.2f} ms of CPU, 95 % under {slow:.2f}")
        per_step, score = play(WebShop(data=folder), options.episodes)
        print(f"scripted player: {per_step:.3f} ms of CPU a step, mean score {score:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
