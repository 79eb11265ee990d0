from __future__ import annotations

from pathlib import Path

import pytest

from stream_rl.errors import UsageError
from stream_rl.observe.rundir import RunDirectory, append_json, keep_json_lines, read_json_lines


def test_a_run_is_found_by_folder_and_by_name(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "runs" / "one")
    run.config.write_text("")
    assert RunDirectory.existing("one", base=tmp_path / "runs").run_id == run.run_id
    assert RunDirectory.existing(str(run.root)).root == run.root
    with pytest.raises(UsageError, match="no run 'two'; runs here: one"):
        RunDirectory.existing("two", base=tmp_path / "runs")
    with pytest.raises(UsageError, match="already holds a run"):
        RunDirectory.create(tmp_path / "runs" / "one")


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    append_json(path, {"step": 0})
    with path.open("a") as file:
        file.write('{"step": 1, "los')
    assert list(read_json_lines(path)) == [{"step": 0}]
    assert list(read_json_lines(tmp_path / "missing.jsonl")) == []


def test_lines_after_a_checkpoint_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    for step in range(5):
        append_json(path, {"step": step})
    keep_json_lines(path, 3, "step")
    assert [r["step"] for r in read_json_lines(path)] == [0, 1, 2]


def test_nan_is_never_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        append_json(tmp_path / "m.jsonl", {"loss": float("nan")})


def test_a_run_belongs_to_one_process_at_a_time(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "one")
    with run.exclusive(), pytest.raises(UsageError, match="is running"), run.exclusive():
        pass
    with run.exclusive():
        pass


def test_a_folder_that_cannot_be_made_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(UsageError, match="cannot be made"):
        RunDirectory.create(tmp_path / "runs" / "one")
