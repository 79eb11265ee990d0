"""Thousands of random schedules of the whole orchestrator, in virtual time: does everything hold that must?

    python -m benchmarks.schedules [--count 10000] [--first 0] [--workers 2] [--json]
    python -m benchmarks.schedules --seed N

Each schedule is one run of the real orchestrator with its real ledger and the real link protocol, between scripted
producers, judges and a learner: rollouts with heavy tails, failures, deaths, late joiners, broken connections,
duplicates, judges that are out, refused groups, pauses, other depths, stops, and kills between any two ledger calls,
each followed by a resume. What is checked after every event and at the end: docs/staleness.md.

`--seed` plays one schedule and says what it was. The exit code is 1 when a schedule fails.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import msgspec

from tests.unit.orchestrator.virtual.play import Played, ScheduleFailed, play
from tests.unit.orchestrator.virtual.schedule import draw

_CHUNK = 25  # schedules handed to a worker at once


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000, help="schedules to play (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="number of the first one (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="processes (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="play this schedule alone, and show it")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args(argv)
    if arguments.seed is not None:
        return _one(arguments.seed)
    began_s = time.perf_counter()
    seeds = range(arguments.first, arguments.first + arguments.count)
    with ProcessPoolExecutor(arguments.workers) as pool:
        results = list(_shown(pool.map(attempt, seeds, chunksize=_CHUNK), len(seeds)))
    summary = summarise(results, time.perf_counter() - began_s)
    print(json.dumps(summary) if arguments.json else _in_words(summary))
    return 1 if summary["failed"] else 0


def attempt(seed: int) -> Played | str:
    """Play one schedule; a failure comes back in words."""
    try:
        return play(seed)
    except ScheduleFailed as error:
        return str(error)


def summarise(results: Iterable[Played | str], seconds: float) -> dict[str, Any]:
    """What happened in all of them."""
    failed = [r for r in results if isinstance(r, str)]
    played = [r for r in results if isinstance(r, Played)]
    discarded: Counter[str] = Counter()
    lags: dict[int, Counter[int]] = {}
    for p in played:
        discarded.update({reason.split(":")[0]: n for reason, n in p.discarded.items()})
        if p.honest:
            lags.setdefault(p.bound, Counter())[p.max_lag] += 1
    return {
        "schedules": len(failed) + len(played),
        "failed": failed,
        "ends": dict(sorted(Counter(end for p in played for end in p.ends).items())),
        "events": sum(p.events for p in played),
        "leases": sum(p.leases for p in played),
        "trained": sum(p.trained for p in played),
        "discarded": dict(sorted(discarded.items())),
        "rerolled": sum(p.rerolled for p in played),
        "max_lag_by_bound": {str(b): dict(sorted(lags[b].items())) for b in sorted(lags)},
        "virtual_s": round(sum(p.virtual_s for p in played)),
        "seconds": round(seconds, 1),
        "ms_each": round(1000 * seconds / max(1, len(failed) + len(played)), 1),
    }


def _one(seed: int) -> int:
    schedule = draw(seed)
    print(json.dumps(msgspec.to_builtins(schedule), indent=1).replace("Infinity", "null"))
    result = attempt(seed)
    if isinstance(result, str):
        print(result)
        return 1
    print(json.dumps(msgspec.to_builtins(result), indent=1))
    return 0


def _shown(results: Iterable[Played | str], total: int) -> Iterable[Played | str]:
    """The results as they come; people see how far it is, and each failure at once."""
    for done, result in enumerate(results, start=1):
        if isinstance(result, str):
            print(result, file=sys.stderr, flush=True)
        if done % 500 == 0:
            print(f"{done} of {total}", file=sys.stderr, flush=True)
        yield result


def _in_words(summary: dict[str, Any]) -> str:
    lines = [
        f"{summary['schedules']} schedules, {len(summary['failed'])} failed; {summary['seconds']} s "
        f"({summary['ms_each']} ms each) for {summary['virtual_s']} s of virtual time",
        f"{summary['events']} events, {summary['leases']} leases, {summary['trained']} groups trained",
        f"processes by their end: {summary['ends']}",
        f"groups discarded: {summary['discarded']}",
        f"groups rolled again, each for one that was discarded: {summary['rerolled']}",
        "largest lag, in schedules with honest generators (schedules by lag):",
        *(f"  bound {bound}: {lags}" for bound, lags in summary["max_lag_by_bound"].items()),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
