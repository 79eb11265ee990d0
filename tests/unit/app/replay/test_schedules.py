"""The real orchestrator under random schedules, killed and resumed: what it did comes out of its ledger again."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream_rl.app.replay.recompute import recompute
from stream_rl.app.replay.recording import Recording
from stream_rl.app.replay.settings import Settings
from stream_rl.observe.rundir import RunDirectory
from tests.unit.orchestrator.virtual.clock import run
from tests.unit.orchestrator.virtual.play import _Run
from tests.unit.orchestrator.virtual.schedule import draw


# Refused and rolled again; selected by tags; rounds with a window. All of them killed on the way.
@pytest.mark.parametrize("seed", [3, 8, 9])
def test_a_run_comes_out_again(seed: int, tmp_path: Path) -> None:
    schedule = draw(seed)
    run(_Run(schedule, tmp_path).play)
    run_dir = RunDirectory(tmp_path / "run")
    recording = Recording(run_dir.ledger)
    with recording:
        found = recompute(run_dir, recording, Settings(run=schedule.config, changed=schedule.config, changes=()))
    assert [r.update for r in found.rounds] == list(range(schedule.config.updates))
    assert [r.update for r in found.rounds if not r.agrees] == []
    assert found.metrics.differences == ()
    assert found.metrics.lines == schedule.config.updates
