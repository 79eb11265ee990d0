"""What the live page costs a run, and how fast it answers while the run trains.

    python -m benchmarks.page [--seconds 30] [--pairs 3] [--json]

One real run of the embedded default, in a temporary folder. After it has begun to train, spans of `--seconds` in which
a viewer asks everything that the page's own script asks, as often as it does, take turns with spans in which nobody
looks. The viewer opens rollouts and older groups, too, which people do less often.

- `answer_p95_ms`: of all the viewer's requests, over the network of this machine, while the run trains.
- `cpu_frac`: processor seconds of the orchestrator in watched spans less those in the others, for each second and core:
  the most that can be missing from generation and training. It resolves far less than two percent.
- `tokens_per_s`: sampled by training rollouts, watched and alone, to the update: noisy, but it is what a run is for.
- `long_first_s`, `long_p95_ms`: a run of 10,000 updates: until a viewer has everything, and later answers.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import msgspec

from stream_rl import config as configuration
from stream_rl.app.watching import serve_page
from stream_rl.observe.records import number
from stream_rl.observe.rundir import RunDirectory, read_json_lines
from stream_rl.rubrics.vocabulary import builtin

WARM_UP = 3  # updates
ROUND_S = 2.0  # between two looks of the page's script
SLOW = 5  # rounds between two looks at what changes slowly
LONG_UPDATES = 10_000
ANSWER_LIMIT_MS = 100.0
COST_LIMIT_FRAC = 0.02


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of the run."""

    watched: bool
    wall_s: float
    cpu_s: float  # of the orchestrator
    tokens_per_s: float | None  # None: no whole update in it


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Everything."""

    answers: int
    answer_p50_ms: float
    answer_p95_ms: float
    answer_max_ms: float
    cpu_frac: float
    tokens_per_s_watched: float | None
    tokens_per_s_alone: float | None
    long_first_s: float
    long_p95_ms: float


class Viewer:
    """Asks what the page's script asks, and notes how long each answer takes."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._round = 0
        self._since = -1
        self._epoch = ""
        self.seconds: list[float] = []

    async def look_for(self, seconds: float) -> None:
        """Keep the page up to date."""
        with anyio.move_on_after(seconds):
            while True:
                await self.look()
                await anyio.sleep(ROUND_S)

    async def look(self) -> None:
        """One round."""
        await self._get("live")
        await self.catch_up()
        if self._round % SLOW == 0:
            await self._get("evaluations")
            await self._get("events")
            while not (await self._get("rubrics"))["complete"]:
                pass
        if self._round % (6 * SLOW) == 0:
            await self._get("depths")
        page = await self._get("groups", before=0)
        if members := [m for group in page["groups"] for m in group["members"]]:
            await self._get("rollout", id=members[self._round % len(members)]["id"])
        if page["before"]:
            await self._get("groups", before=page["before"])
        self._round += 1

    async def catch_up(self) -> None:
        """All updates that are new."""
        more = True
        while more:
            found = await self._get("updates", since=self._since, points=400, epoch=self._epoch)
            self._epoch, self._since, more = found["epoch"], max([self._since, *found["step"]]), found["more"]

    async def _get(self, path: str, **query: Any) -> Any:
        began = time.perf_counter()
        async with self._session.get(f"/api/{path}", params=query) as response:
            found = await response.json()
        self.seconds.append(time.perf_counter() - began)
        if response.status != 200:
            raise RuntimeError(f"{path}: {response.status} {found}")
        return found


@contextmanager
def training(folder: Path) -> Iterator[tuple[RunDirectory, str]]:
    """A run that trains, and its page's address."""
    command = [sys.executable, "-m", "stream_rl.cli", "up", "--name", "watched", "--json"]
    command += ["--set", "updates=100000", "--set", "eval.every=0", "--set", "learner.checkpoint_every=0"]
    process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    address = ""
    try:
        for line in process.stdout:
            event = json.loads(line)
            if event["type"] == "page":
                address = event["address"]
            if event["type"] == "update" and event["step"] >= WARM_UP:
                break
        else:
            raise RuntimeError("the run ended before it trained")
        yield RunDirectory(folder / "runs" / "watched"), address
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate()


def orchestrator_pid(run: RunDirectory) -> int:
    """The process that owns the run's state and serves its page."""
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if b"orchestrator" in words and Path(os.readlink(entry / "cwd")) == run.root.parent.parent:
                return int(entry.name)
        except OSError:  # it ended while we looked
            continue
    raise RuntimeError("no orchestrator is running")


def cpu_s(pid: int) -> float:
    """Processor seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def tokens(run: RunDirectory) -> tuple[float, float]:
    """(training seconds, sampled tokens) up to the newest update."""
    lines = list(read_json_lines(run.metrics))
    return lines[-1]["train_s"], sum(number(line, "tokens", "generated") or 0.0 for line in lines)


async def spans(run: RunDirectory, viewer: Viewer, seconds: float, pairs: int) -> list[Span]:
    """Watched and unwatched stretches in turn, each order as often as the other."""
    pid = orchestrator_pid(run)
    found = []
    for watched in [side for pair in range(pairs) for side in ((True, False), (False, True))[pair % 2]]:
        began, cpu, (train_s, sampled) = time.perf_counter(), cpu_s(pid), await anyio.to_thread.run_sync(tokens, run)
        await (viewer.look_for(seconds) if watched else anyio.sleep(seconds))
        then_s, then = await anyio.to_thread.run_sync(tokens, run)
        found.append(
            Span(
                watched=watched,
                wall_s=time.perf_counter() - began,
                cpu_s=cpu_s(pid) - cpu,
                tokens_per_s=(then - sampled) / (then_s - train_s) if then_s > train_s else None,
            )
        )
    return found


def long_run(run: RunDirectory, folder: Path) -> RunDirectory:
    """A run of 10,000 updates, made of this one's lines."""
    lines = list(read_json_lines(run.metrics))
    long = RunDirectory.create(folder / "runs" / "long")
    long.config.write_bytes(run.config.read_bytes())
    with long.metrics.open("w", encoding="utf-8") as file:
        for step in range(LONG_UPDATES):
            line = {**lines[step % len(lines)], "step": step, "version": step + 1, "train_s": 3.0 * step}
            file.write(json.dumps(line, separators=(",", ":")) + "\n")
    return long


async def first_look(run: RunDirectory) -> tuple[float, list[float]]:
    """Seconds until a viewer of a long run has every update, and of each answer after that."""
    config = configuration.load([run.config])
    async with anyio.create_task_group() as tasks:
        address = await tasks.start(serve_page, run, config, builtin(), 0)
        async with aiohttp.ClientSession(address) as session:
            viewer = Viewer(session)
            began = time.perf_counter()
            await viewer.catch_up()
            first_s = time.perf_counter() - began
            viewer.seconds.clear()
            for _ in range(2 * SLOW):
                await viewer.look()
        tasks.cancel_scope.cancel()
    return first_s, viewer.seconds


def percentile_ms(seconds: Sequence[float], percent: int) -> float:
    """A percentile of answers, in milliseconds."""
    return 1000 * statistics.quantiles(seconds, n=100, method="inclusive")[percent - 1]


async def measure(folder: Path, seconds: float, pairs: int) -> Measured:
    """Run it."""
    with training(folder) as (run, address):
        async with aiohttp.ClientSession(address) as session:
            viewer = Viewer(session)
            await viewer.look()
            found = await spans(run, viewer, seconds, pairs)
    long_s, later = await first_look(long_run(run, folder))
    rate = {side: sum(s.cpu_s for s in found if s.watched is side) / sum(s.wall_s for s in found if s.watched is side)
            for side in (True, False)}  # fmt: skip
    sampled = {side: [s.tokens_per_s for s in found if s.watched is side and s.tokens_per_s] for side in (True, False)}
    return Measured(
        answers=len(viewer.seconds),
        answer_p50_ms=percentile_ms(viewer.seconds, 50),
        answer_p95_ms=percentile_ms(viewer.seconds, 95),
        answer_max_ms=1000 * max(viewer.seconds),
        cpu_frac=(rate[True] - rate[False]) / (os.cpu_count() or 1),
        tokens_per_s_watched=statistics.fmean(sampled[True]) if sampled[True] else None,
        tokens_per_s_alone=statistics.fmean(sampled[False]) if sampled[False] else None,
        long_first_s=long_s,
        long_p95_ms=percentile_ms(later, 95),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=30.0, help="of one span; default 30")
    parser.add_argument("--pairs", type=int, default=3, help="watched and unwatched spans; default 3 of each")
    parser.add_argument("--json", action="store_true", help="print facts as JSON")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = anyio.run(measure, Path(folder), arguments.seconds, arguments.pairs)
    if arguments.json:
        print(json.dumps(msgspec.to_builtins(found)))
    else:
        for name, value in msgspec.to_builtins(found).items():
            print(f"{name:<22}{'-' if value is None else format(value, '.4g')}")
    return 0 if found.answer_p95_ms < ANSWER_LIMIT_MS and found.cpu_frac < COST_LIMIT_FRAC else 1


if __name__ == "__main__":
    sys.exit(main())
