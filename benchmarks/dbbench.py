"""Seconds for DBBench episodes of two steps, many at once over one worker and so one server.

python -m benchmarks.dbbench [--backend mysql] [--episodes 300] [--parallel 64] [--workers 1] [--data PATH]
"""

from __future__ import annotations

import argparse
import resource
import sys

import anyio

from envs.players import scripted
from envs.pool import WorkerPool
from envs.trial import TrialReport, run_trial
from stream_rl.config import EnvironmentConfig


async def run(arguments: argparse.Namespace) -> TrialReport:
    config = EnvironmentConfig(
        name="dbbench",
        data=arguments.data,
        workers=arguments.workers,
        step_deadline_s=60.0,
        options={"backend": arguments.backend, "dsn_env": arguments.dsn_env},
    )
    async with WorkerPool([config]) as pool:  # started before the clock is
        return await run_trial(
            pool,
            "dbbench",
            scripted("dbbench"),
            tasks=arguments.episodes,
            parallel=arguments.parallel,
            max_turns=15,
        )


def _cpu_s() -> float:
    """Of this process and all that have ended under it."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=["sqlite", "mysql"], default="mysql")
    parser.add_argument("--dsn-env", default="", help="environment variable with the address of a server")
    parser.add_argument("--episodes", type=int, default=300)
    parser.add_argument("--parallel", type=int, default=64)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--data", default="")
    arguments = parser.parse_args()
    report = anyio.run(run, arguments)
    print(
        f"{arguments.backend}: {report.episodes} episodes ({report.solved} solved), {arguments.parallel} at once over "
        f"{arguments.workers} worker: {report.seconds:.2f} s, {1000 * report.seconds / report.episodes:.1f} ms each; "
        f"processor {_cpu_s():.2f} s, start and end of worker and server included"
    )
    return 0 if report.flawless else 1


if __name__ == "__main__":
    sys.exit(main())
