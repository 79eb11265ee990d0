"""`up --resume` of a run that has nothing left to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream_rl import cli
from stream_rl import config as configuration
from stream_rl.app import preflight
from stream_rl.app.defaults import EMBEDDED
from stream_rl.errors import UsageError
from stream_rl.observe.rundir import RunDirectory, append_json


class StartedError(Exception):
    """The run would have gone on."""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    """Four updates, all trained and saved."""

    def start(config: object) -> None:
        raise StartedError

    monkeypatch.setattr(preflight, "check_static", start)
    run = RunDirectory.create(tmp_path / "done")
    run.config.write_text(configuration.to_toml(configuration.load([EMBEDDED], ["updates=4"])), encoding="utf-8")
    checkpoint = run.checkpoints / "000004"
    checkpoint.mkdir()
    (checkpoint / "state.json").write_text("{}", encoding="utf-8")
    append_json(run.events, {"type": "finished", "complete": True, "version": 4})
    return run


def test_it_is_refused_with_what_can_be_done(run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["up", "--resume", str(run.root)]) == 2
    told = capsys.readouterr().err
    assert "is complete: all its 4 updates are trained" in told
    assert f"stream-rl report {run.root}" in told
    assert "--set updates=8" in told


def test_more_updates_go_on(run: RunDirectory) -> None:
    with pytest.raises(StartedError):
        cli.main(["up", "--resume", str(run.root), "--set", "updates=6"])


def test_a_run_that_was_killed_before_it_said_that_it_is_complete_goes_on(run: RunDirectory) -> None:
    """Its last evaluation may be missing."""
    run.events.unlink()
    with pytest.raises(StartedError):
        cli.main(["up", "--resume", str(run.root)])


def test_a_run_that_is_no_run_stays_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run"):
        RunDirectory.existing("nothing", base=tmp_path)
