"""Three worlds in one run, whose workers are killed one after another while it trains."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import statistics
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from stream_rl.observe.rundir import read_json_lines
from tests.process.runner import Up, gone, pids_of

pytestmark = [pytest.mark.process, pytest.mark.timeout(500)]

JOINT = Path(__file__).parents[2] / "configs" / "embedded-joint.toml"
WORLDS = ("dbbench", "household", "webshop")
UPDATES, TRAINED = 5, 3
KILL_EVERY_S, MOST_KILLS = 1.0, 8  # on a slow machine a worker may take longer to start than one lives
SMALL = (
    "policy.init=random-tiny",
    "generate.engine=transformers",
    "generate.max_turns=12",
    f"updates={UPDATES}",
    "groups.candidates=6",
    f"groups.per_update={TRAINED}",
    "groups.size=4",
    f"eval.every={UPDATES}",
    "eval.tasks=2",
    "eval.rollouts=1",
)


def _kill_oldest_worker(folder: Path) -> int | None:
    """The one that has lived longest, so that each world has its turn."""
    pids = pids_of(folder, "envs.worker")
    for pid in sorted(pids):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:  # it ended by itself meanwhile
            continue
        return pid
    return None


@contextmanager
def _killing(folder: Path) -> Iterator[list[int]]:
    """Kill workers of the run, one after another, while the block runs."""
    over, killed = threading.Event(), list[int]()

    def work() -> None:
        while len(killed) < MOST_KILLS and not over.wait(KILL_EVERY_S):
            if (pid := _kill_oldest_worker(folder)) is not None:
                killed.append(pid)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def test_killed_workers_cost_the_episodes_they_held_and_these_are_made_again(tmp_path: Path) -> None:
    small = [part for pair in SMALL for part in ("--set", pair)]
    up = Up(tmp_path, str(JOINT), "--name", "t", *small)
    up.until(lambda event: event["type"] == "eval")
    with _killing(tmp_path) as killed:
        up.succeed(within_s=350)
    assert gone(tmp_path) == []
    assert killed
    run = tmp_path / "runs" / "t"
    lines = list(read_json_lines(run / "metrics.jsonl"))
    assert [line["step"] for line in lines] == list(range(UPDATES))
    for line in lines:
        assert tuple(line["success"]["by_env"]) == WORLDS
        assert {name: facts["selected"] for name, facts in line["by_env"].items()} == dict.fromkeys(WORLDS, 1)
    assert sum(line["rollouts"]["rerolled"].get("environment_lost", 0) for line in lines) >= 1
    reasons = {reason for line in lines for reason in line["groups"]["discarded"]}
    assert reasons <= {"not_selected", "too_few_valid"}
    evaluations = list(read_json_lines(run / "eval.jsonl"))
    assert [line["step"] for line in evaluations] == [0, UPDATES]
    for line in evaluations:
        assert {name: facts["tasks"] for name, facts in line["by_env"].items()} == dict.fromkeys(WORLDS, 2)
        rates = [facts["success"] for facts in line["by_env"].values()]
        assert line["success"]["overall"] == pytest.approx(statistics.fmean(rates))
    _check_ledger(run / "ledger.sqlite")
    assert [event for event in up.events if event["type"] in ("role_restarted", "producer_left")] == []


def _check_ledger(path: Path) -> None:
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
    assert len({group_id for group_id, _ in trained}) == len(trained) == UPDATES * TRAINED
    assert Counter(environment for _, environment in trained) == dict.fromkeys(WORLDS, UPDATES)
    for group_id, error in failed:
        world = worlds[group_id]
        assert re.match(
            rf"EnvironmentLost: (no worker of {world} is up: )?{world}: worker 0 was killed by signal 9"
            rf"|EnvironmentFailed: task {world}/train/\d+ is refused: it brought down 2 workers",
            error,
        )
