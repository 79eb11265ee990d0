from __future__ import annotations

from pathlib import Path

from stream_rl.app.parts import judge_pid_file, judge_pids
from stream_rl.observe.rundir import RunDirectory


def test_judges_that_have_not_said_which_process_they_are_are_left_out(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "r")
    judge_pid_file(run, 0).write_text("41", encoding="ascii")
    judge_pid_file(run, 2).write_text("", encoding="ascii")  # about to write
    judge_pid_file(run, 3).write_text("43", encoding="ascii")
    assert list(judge_pids(run, [0, 1, 2, 3])) == [41, 43]
