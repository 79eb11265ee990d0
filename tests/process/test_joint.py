"""Three worlds in one run, whose workers are killed one after another while it trains."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import statistics
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stream_rl.observe.rundir import read_json_lines
from tests.process.runner import Up, gone, pids_of

pytestmark = [pytest.mark.process, pytest.mark.timeout(500)]

JOINT = Path(__file__).parents[2] / "configs" / "embedded-joint.toml"
WORLDS = ("dbbench", "household", "webshop")
UPDATES, TRAINED = 5, 3
SMALL = (
    "policy.init=random-tiny",
    "generate.engine=transformers",
    "generate.max_turns=12",
    "updates=100000",
    "groups.candidates=6",
    f"groups.per_update={TRAINED}",
    "groups.size=4",
    f"eval.every={UPDATES}",
    "eval.tasks=2",
    "eval.rollouts=1",
)


def _evaluated(step: int) -> Callable[[dict[str, Any]], bool]:
    return lambda event: event["type"] == "eval" and event["step"] == step


def _kill_oldest_worker(folder: Path) -> list[int]:
    """The one that has lived longest, so that each world has its turn; none where none is up."""
    pids = pids_of(folder, "envs.worker")
    for pid in sorted(pids):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:  # it ended by itself meanwhile
            continue
        return [pid]
    return []


def test_killed_workers_cost_the_episodes_they_held_and_these_are_made_again(tmp_path: Path) -> None:
    """A worker is killed after each update, until one of them held episodes, for five updates at least."""
    small = [part for pair in SMALL for part in ("--set", pair)]
    up = Up(tmp_path, str(JOINT), "--name", "t", *small)
    up.until(_evaluated(0))
    killed: list[int] = []
    lost = updates = 0
    while updates < UPDATES or not lost:
        update = up.until(lambda event: event["type"] == "update")
        updates += 1
        lost += update["rollouts"]["rerolled"].get("environment_lost", 0)
        killed += _kill_oldest_worker(tmp_path)
    if not any(map(_evaluated(UPDATES), up.events)):
        up.until(_evaluated(UPDATES))
    up.interrupt()
    up.succeed()
    assert gone(tmp_path) == []
    assert len(killed) >= 3
    run = tmp_path / "runs" / "t"
    lines = list(read_json_lines(run / "metrics.jsonl"))
    assert len(lines) >= updates
    assert [line["step"] for line in lines] == list(range(len(lines)))
    for line in lines:
        assert tuple(line["success"]["by_env"]) == WORLDS
        assert {name: facts["selected"] for name, facts in line["by_env"].items()} == dict.fromkeys(WORLDS, 1)
    reasons = {reason for line in lines for reason in line["groups"]["discarded"]}
    assert reasons <= {"not_selected", "too_few_valid"}
    evaluations = list(read_json_lines(run / "eval.jsonl"))
    assert [line["step"] for line in evaluations][:2] == [0, UPDATES]
    for line in evaluations:
        assert {name: facts["tasks"] for name, facts in line["by_env"].items()} == dict.fromkeys(WORLDS, 2)
        rates = [facts["success"] for facts in line["by_env"].values()]
        assert line["success"]["overall"] == pytest.approx(statistics.fmean(rates))
    _check_ledger(run / "ledger.sqlite", len(lines))
    assert [event for event in up.events if event["type"] in ("role_restarted", "producer_left")] == []


def _check_ledger(path: Path, updates: int) -> None:
    """No group is trained twice, every world is trained on, and what failed was held by a worker that was killed."""
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as db:
        trained = db.execute(
            "SELECT t.group_id, g.environment FROM transitions t JOIN groups g USING (group_id) "
            "WHERE t.state = 'trained'"
        ).fetchall()
        failed = db.execute(
            "SELECT group_id, error FROM trajectories WHERE purpose = 'train' AND error IS NOT NULL"
        ).fetchall()
        worlds = dict(db.execute("SELECT group_id, environment FROM groups").fetchall())
    assert len({group_id for group_id, _ in trained}) == len(trained) == updates * TRAINED
    assert Counter(environment for _, environment in trained) == dict.fromkeys(WORLDS, updates)
    for group_id, error in failed:
        world = worlds[group_id]
        assert re.match(
            rf"EnvironmentLost: (no worker of {world} is up: )?{world}: worker 0 was killed by signal 9"
            rf"|EnvironmentFailed: task {world}/train/\d+ is refused: it brought down 2 workers",
            error,
        )
