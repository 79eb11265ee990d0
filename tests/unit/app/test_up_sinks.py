"""`up` with sinks, but without roles: a supervisor that says what a run says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stream_rl.app.commands import up
from stream_rl.config import from_dict
from stream_rl.observe.rundir import RunDirectory, append_json
from stream_rl.sinks.port import Point, RunFacts
from stream_rl.sinks.registry import Entry
from tests.unit.observe.samples import eval_record, metrics_line

Board = Callable[[dict[str, Any]], None]


class Saying:
    """A supervisor whose run is two updates."""

    def __init__(self, *, board: Board, **_: Any) -> None:
        self._board = board

    async def run(self) -> int:
        for step in (4, 5):
            self._board({"type": "update", **metrics_line(step, train_s=4.0 * step)})
        return 0


class Keeping:
    """A sink that keeps what it was started with and given."""

    def __init__(self, facts: RunFacts) -> None:
        STARTED.append(facts)
        self.steps: list[int] = STEPS

    def write(self, point: Point) -> None:
        self.steps.append(point.step)

    def close(self) -> None:
        self.steps.append(-1)


STARTED: list[RunFacts] = []
STEPS: list[int] = []


@pytest.mark.parametrize("resumed", [False, True])
def test_what_the_run_says_reaches_the_sink(
    resumed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    STARTED.clear()
    STEPS.clear()
    monkeypatch.setattr(up, "Supervisor", Saying)
    monkeypatch.setattr(up, "latest", lambda root: root / "checkpoints" / "000004")
    monkeypatch.setattr(up, "ENTRIES", {"prometheus": Entry(start=Keeping)})
    run = RunDirectory.create(tmp_path / "run")
    for version in (0, 4, 8):
        append_json(run.eval, eval_record(version, train_s=4.0 * version, success=0.5))
    config = from_dict({"sinks": ["prometheus"], "seed": 3})
    assert up._train(run, config, resumed=resumed, json_lines=True) == 0
    assert STEPS == [4, 5, -1]
    (facts,) = STARTED
    assert (facts.name, facts.run_id, facts.config["seed"]) == ("run", run.run_id, 3)
    assert facts.resumed_at == (4 if resumed else None)
    assert (facts.kept_evaluation.step if facts.kept_evaluation else None) == (4 if resumed else None)
    assert [line.split('"')[3] for line in capsys.readouterr().out.splitlines()] == ["start", "update", "update"]


def test_a_sink_that_never_comes_back_does_not_keep_the_process(tmp_path: Path) -> None:
    """Nor does an exit handler of its package: the command ends with the run's exit code."""
    script = tmp_path / "hang.py"
    script.write_text(
        "import atexit, sys, threading\n"
        "from stream_rl.app.commands import up\n"
        "from stream_rl.config import from_dict\n"
        "from stream_rl.observe.rundir import RunDirectory\n"
        "from stream_rl.sinks import board\n"
        "from stream_rl.sinks.registry import Entry\n"
        "from tests.unit.app.test_up_sinks import Saying\n"
        "from pathlib import Path\n"
        "for_ever = threading.Event()\n"
        "atexit.register(for_ever.wait)\n"
        "up.Supervisor, up.ENTRIES = Saying, {'prometheus': Entry(start=lambda facts: for_ever.wait())}\n"
        "board.SinkBoard.__init__.__kwdefaults__['flush_s'] = 0.1\n"
        "run = RunDirectory.create(Path(sys.argv[1]))\n"
        "sys.exit(up._train(run, from_dict({'sinks': ['prometheus']}), resumed=False, json_lines=True))\n",
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "run")],
        cwd=Path(__file__).parents[3],
        env={**os.environ, "PYTHONPATH": "."},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert '"type": "sink"' in done.stdout.splitlines()[-1]
