"""`replay`: a run's decisions again, from its ledger: by a judge, or with its own verdicts and another configuration.

Results go to `RUN/replay/`: `NAME.json` (what was found) and, with a judge, `NAME.sqlite` (verdicts) and `cache.sqlite`
(answers, so that an interrupted replay goes on where it was). The ledger itself is only read.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import groupby

import anyio
import anyio.abc
import anyio.to_thread
import msgspec

from stream_rl.app.replay.comparison import Comparing, Comparison, RejudgedGroup
from stream_rl.app.replay.facts import ReplayFacts, Spending, as_json, in_words
from stream_rl.app.replay.plan import ReplayPlan, plan_replay
from stream_rl.app.replay.rejudge import rejudge
from stream_rl.app.replay.results import ReplayResults
from stream_rl.causes import cause
from stream_rl.config import JudgeEndpoint
from stream_rl.errors import JudgeFailed, UsageError
from stream_rl.observe.archive import Archive, ArchivedGroup
from stream_rl.observe.rundir import RunDirectory
from stream_rl.types import Verdict

_INTERRUPTED = 130
_JUDGE_OPTIONS = ("endpoint", "model", "key_env", "vocabulary", "limit")
_PROGRESS_S = 0.25  # between two movements of the progress line
_PROGRESS_PARTS = 10  # lines of progress where there is no terminal


def run(arguments: argparse.Namespace) -> int:
    """Judge again or recompute, compare, print.

    Exit code 130 after Ctrl-C: the same command goes on from there. 1 where a recomputation alone finds that the run
    does not come out again.
    """
    run_dir = RunDirectory.existing(arguments.run)
    if arguments.overrides or arguments.recompute:
        return _recompute(arguments, run_dir)
    return _judge_again(arguments, run_dir)


def _recompute(arguments: argparse.Namespace, run_dir: RunDirectory) -> int:
    """Everything from the ledger, with the run's own verdicts."""
    given = [f"--{name.replace('_', '-')}" for name in _JUDGE_OPTIONS if getattr(arguments, name) is not None]
    if given:
        raise UsageError(
            f"{', '.join(given)} asks a judge again, --set and --recompute take the run's own verdicts; "
            "make one replay of each"
        )
    from stream_rl.app.replay import recompute_words
    from stream_rl.app.replay.recompute import recompute
    from stream_rl.app.replay.recording import Recording
    from stream_rl.app.replay.settings import read_settings

    settings = read_settings(run_dir.config, arguments.overrides)
    if not run_dir.ledger.is_file():
        raise UsageError(f"{run_dir.root} has nothing to recompute: there is no ledger.sqlite in it")
    folder = run_dir.root / "replay"
    folder.mkdir(exist_ok=True)
    recording = Recording(run_dir.ledger)
    with RunDirectory(folder).exclusive(), recording:
        facts = recompute(run_dir, recording, settings)
    found = recompute_words.as_json(facts)
    (folder / f"{settings.name}.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    sys.stdout.write((json.dumps(found) if arguments.json else recompute_words.in_words(facts)) + "\n")
    return 0 if facts.agrees or settings.changes else 1


def _judge_again(arguments: argparse.Namespace, run_dir: RunDirectory) -> int:
    plan = plan_replay(
        run_dir,
        url=arguments.endpoint,
        model=arguments.model,
        key_env=arguments.key_env,
        vocabulary_file=arguments.vocabulary,
    )
    if arguments.limit is not None and arguments.limit < 1:
        raise UsageError(f"--limit {arguments.limit}: expected 1 or more")
    folder = run_dir.root / "replay"
    folder.mkdir(exist_ok=True)
    with RunDirectory(folder).exclusive(), _archive(run_dir) as archive:
        total = sum(archive.sizes().values())
        if total == 0:
            raise UsageError(f"{run_dir.root} has no training rollouts to judge: its ledger holds none yet")
        limit = min(total, arguments.limit or total)
        try:
            facts = anyio.run(_replay, run_dir, plan, archive, limit, total)
        except BaseExceptionGroup as group:
            raise cause(group) from None
        except KeyboardInterrupt:
            sys.stderr.write("\ninterrupted; the same command goes on from here\n")
            return _INTERRUPTED
    found = as_json(facts)
    (folder / f"{plan.name}.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    sys.stdout.write((json.dumps(found) if arguments.json else in_words(facts)) + "\n")
    return 0


def _archive(run_dir: RunDirectory) -> Archive:
    if not run_dir.ledger.is_file():
        raise UsageError(f"{run_dir.root} has no training rollouts to judge: there is no ledger.sqlite in it")
    return Archive(run_dir.ledger)


async def _replay(run_dir: RunDirectory, plan: ReplayPlan, archive: Archive, limit: int, total: int) -> ReplayFacts:
    """Everything that needs the event loop: the judges, and the rollouts through them."""
    from judge.cache import MAX_ROWS, CachedJudge
    from judge.client import OpenAIJudge

    folder = run_dir.root / "replay"
    started = time.monotonic()
    groups = archive.groups()
    async with _reachable(plan.endpoints) as endpoints:
        spending = Spending({e.url: (e.price_in, e.price_out) for e in endpoints})
        progress = _Progress(limit)

        def heard(verdict: Verdict) -> None:
            spending.add(verdict)
            progress.show(spending.verdicts)

        async with (
            OpenAIJudge(endpoints, plan.vocabulary, chunk=plan.chunk) as asked,
            CachedJudge(
                asked,
                folder / "cache.sqlite",
                vocabulary=plan.vocabulary,
                models=lambda: plan.models,
                chunk=plan.chunk,
                max_rows=max(MAX_ROWS, 2 * limit),
            ) as judge,
        ):
            with ReplayResults(folder / f"{plan.name}.sqlite") as results:
                workers = sum(endpoint.concurrency for endpoint in endpoints)
                await rejudge(archive, groups, judge, results, limit=limit, workers=workers, heard=heard)
                progress.end()
                comparison = await anyio.to_thread.run_sync(_compare, archive, groups, results, plan)
                file = results.finish()
        return ReplayFacts(
            run=run_dir.root.name,
            file=str(file),
            plan=plan,
            total=total,
            spending=spending,
            from_cache=judge.stats.hits,
            seconds=time.monotonic() - started,
            comparison=comparison,
        )


def _compare(archive: Archive, groups: Sequence[ArchivedGroup], results: ReplayResults, plan: ReplayPlan) -> Comparison:
    comparing = Comparing(plan.algorithm, plan.vocabulary.ids)
    sizes = archive.sizes()
    for _, round_ in groupby(groups, key=lambda group: group.round):
        rejudged = []
        for group in round_:
            new = results.verdicts(group.group_id)
            complete = len(new) == sizes.get(group.group_id, 0)
            old = archive.verdicts(group.group_id) if new else []
            rejudged.append(RejudgedGroup(group=group, old=tuple(old), new=tuple(new), complete=complete))
        comparing.add_round(rejudged)
    return comparing.result()


@asynccontextmanager
async def _reachable(endpoints: Sequence[JudgeEndpoint]) -> AsyncIterator[tuple[JudgeEndpoint, ...]]:
    """The endpoints with addresses: "embedded" is started here; any other must tag one tiny transcript first."""
    from judge.ping import ping

    for i, endpoint in enumerate(endpoints):
        if endpoint.url != "embedded":
            report = await ping(endpoint, index=i)
            if not report.ok:
                raise JudgeFailed(f"{endpoint.url} ({endpoint.model}): {report.problem}")
    if all(endpoint.url != "embedded" for endpoint in endpoints):
        yield tuple(endpoints)
        return
    async with anyio.create_task_group() as tasks:
        address = await tasks.start(_serve_rules)
        yield tuple(msgspec.structs.replace(e, url=address) if e.url == "embedded" else e for e in endpoints)
        tasks.cancel_scope.cancel()


async def _serve_rules(task_status: anyio.abc.TaskStatus[str]) -> None:
    from judge.server import serve

    await serve(on_ready=partial(_started, task_status))


def _started(task_status: anyio.abc.TaskStatus[str], address: str) -> None:
    task_status.started(address)


class _Progress:
    """How far it is, on stderr: a line that moves on a terminal, a line a tenth elsewhere."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._terminal = sys.stderr.isatty()
        self._shown_s = 0.0
        self._part = 0

    def show(self, done: int) -> None:
        """`done` rollouts are judged."""
        if self._terminal:
            now = time.monotonic()
            if now - self._shown_s >= _PROGRESS_S or done == self._total:
                self._shown_s = now
                sys.stderr.write(f"\r{done:,}/{self._total:,} rollouts judged")
                sys.stderr.flush()
            return
        part = _PROGRESS_PARTS * done // self._total
        if part > self._part:
            self._part = part
            sys.stderr.write(f"{done:,}/{self._total:,} rollouts judged\n")

    def end(self) -> None:
        """Leave the line."""
        if self._terminal:
            sys.stderr.write("\n")
