"""How much of a slow judge the learner has to wait for, with asynchrony to hide it and without.

    python -m benchmarks.judge_wait [--updates 20] [--set A.B=C]... [--json]

Three real runs of the embedded RISED configuration, one after the other, in a temporary folder, with the rule judge
behind HTTP as an external endpoint that takes a fixed time for every answer, in any number at once. The first run, at
depth 0, tells how long a group takes from its lease to its last rollout while nothing else computes. The judge of
the other two, at depth 2 and at depth 0, takes half that time.

Judge wait is the learner's time in which only verdicts were missing, out of `metrics.jsonl`; shares are of the
learner's training time (no evaluation, no start of engines), over the updates in which the pipeline is full: not the
first S + 1, before which too little lies ahead to hide anything, and not the last S, beside which nothing is generated.
The share over all updates stands beside it. At depth 0 the wait of an update should be one judge latency.

At depth S a round is leased when version `round - S` goes live, so it has S updates to be generated and judged in. A
learner that is faster than that waits whatever the judge does, and the judge, as the last step, is what it waits for.
So every candidate is trained here, which makes the learner the busier side; `--set groups.per_update=16` takes that
back, and shows the recipe as it is shipped on a machine whose cores generation and training share.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import anyio
import msgspec

from benchmarks.recipes import RECIPES
from benchmarks.training_run import train
from judge.server import serve
from stream_rl.observe.learner_time import LearnerTime, learner_times
from stream_rl.observe.rundir import RunDirectory, read_json_lines

SLOWNESS = 0.5  # of the judge, as a share of the generation time
HIDDEN_SHARE = 0.02  # what may be left of it at depth 2
CALIBRATION_UPDATES = 8
CALIBRATION_S = 1.0  # of the judge: long enough that its computing does not fall into the generation
DEPTHS = (2, 0)
MIN_UPDATES = 10


class Waited(msgspec.Struct, frozen=True, kw_only=True):
    """One run with a slow judge."""

    async_depth: int
    updates: int  # with a full pipeline
    update_s: float  # training seconds of an update, median
    judge_wait_s: float  # of an update, mean
    judge_wait_share: float  # of the training time
    judge_wait_share_all: float  # of the training time, all updates of the run included
    rollout_wait_share: float  # of the training time


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Everything."""

    generation_s: float  # of a group from its lease to its last rollout, median
    latency_s: float  # of the judge
    runs: tuple[Waited, ...]


def train_with(folder: Path, name: str, latency_s: float, settings: Sequence[str]) -> RunDirectory:
    """One run whose judge takes `latency_s` for every answer."""
    with slow_judge(latency_s) as url:
        endpoint = f'{{url="{url}",concurrency=1024,deadline_s={30 + 10 * latency_s:.0f}}}'
        common = ("groups.per_update=24", "eval.every=0", "learner.checkpoint_every=0")
        return train(folder, name, RECIPES["rised"], [*common, *settings, f"judge.endpoints=[{endpoint}]"])


def generation_s(run: RunDirectory) -> float:
    """Seconds of a group from its lease to its last rollout, median.

    Without the groups of the first round, which find idle engines.
    """
    query = (
        "SELECT produced.at - leased.at FROM transitions leased JOIN transitions produced USING (group_id)"
        " JOIN groups USING (group_id) WHERE leased.state = 'leased' AND produced.state = 'produced' AND round > 0"
    )
    with sqlite3.connect(f"file:{run.ledger}?mode=ro", uri=True) as ledger:
        return statistics.median(float(seconds) for (seconds,) in ledger.execute(query))


def waited(run: RunDirectory, async_depth: int) -> Waited:
    """What the learner's own account of its time says."""
    times = list(learner_times(list(read_json_lines(run.metrics))))
    steady = times[async_depth + 1 : len(times) - async_depth]

    def share(part: str, of: Sequence[LearnerTime]) -> float:
        return sum(t.parts[part] for t in of) / sum(t.train_s for t in of)

    return Waited(
        async_depth=async_depth,
        updates=len(steady),
        update_s=statistics.median(t.train_s for t in steady),
        judge_wait_s=statistics.fmean(t.parts["judge_wait"] for t in steady),
        judge_wait_share=share("judge_wait", steady),
        judge_wait_share_all=share("judge_wait", times),
        rollout_wait_share=share("rollout_wait", steady),
    )


@contextmanager
def slow_judge(latency_s: float) -> Iterator[str]:
    """The rule judge as a process of its own that takes `latency_s` for every answer; gives its address."""
    command = [sys.executable, "-m", "benchmarks.judge_wait", "--serve", str(latency_s)]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def measure(updates: int, settings: Sequence[str]) -> Measured:
    """All three runs."""
    with tempfile.TemporaryDirectory(prefix="judge_wait_") as name:
        folder = Path(name)
        alone = ("async_depth=0", f"updates={CALIBRATION_UPDATES}")
        generation = generation_s(train_with(folder, "calibration", CALIBRATION_S, [*settings, *alone]))
        latency_s = SLOWNESS * generation
        runs = []
        for depth in DEPTHS:
            own = (f"async_depth={depth}", f"updates={updates if depth else updates // 2}")
            runs.append(waited(train_with(folder, f"depth-{depth}", latency_s, [*settings, *own]), depth))
    return Measured(generation_s=generation, latency_s=latency_s, runs=tuple(runs))


def render(measured: Measured) -> str:
    """A table for people."""
    lines = [
        f"generation of a group {measured.generation_s:.2f} s, judge {measured.latency_s:.2f} s",
        "depth updates update s judge wait s   share all updates rollout wait",
    ]
    lines += [
        f"{r.async_depth:>5} {r.updates:>7} {r.update_s:>8.2f} {r.judge_wait_s:>12.3f} {r.judge_wait_share:>7.1%} "
        f"{r.judge_wait_share_all:>11.1%} {r.rollout_wait_share:>12.1%}"
        for r in measured.runs
    ]
    hidden = measured.runs[0]
    verdict = "holds" if hidden.judge_wait_share < HIDDEN_SHARE else "does not hold"
    lines.append(f"under {HIDDEN_SHARE:.0%} at depth {hidden.async_depth}: {verdict}")
    return "\n".join(lines)


def _serve(latency_s: float) -> None:
    async def listen() -> None:
        await serve(on_ready=lambda url: print(url, flush=True), delay_s=latency_s)

    anyio.run(listen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=20, help="of the run at depth 2, at least 10; half at depth 0")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", help="override one key; repeatable")
    parser.add_argument("--json", action="store_true", help="print facts as one JSON object")
    parser.add_argument("--serve", type=float, metavar="S", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve is not None:
        _serve(arguments.serve)
        return
    if arguments.updates < MIN_UPDATES:
        parser.error(f"--updates {arguments.updates}: expected {MIN_UPDATES} or more")
    measured = measure(arguments.updates, arguments.set)
    print(json.dumps(msgspec.to_builtins(measured)) if arguments.json else render(measured))


if __name__ == "__main__":
    main()
