from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from stream_rl.observe.plots import learning_curve, running_mean
from stream_rl.observe.report import render_text, report_json, to_json, write_report
from stream_rl.observe.rundir import RunDirectory, append_json
from stream_rl.observe.summary import summarise
from tests.unit.observe.samples import ALARM, eval_record, metrics_line


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory.create(tmp_path / "night")
    for i in range(12):
        append_json(run.metrics, metrics_line(i, train_s=4.0 * (i + 1)))
    for version, success in ((0, 0.2), (6, 0.45), (12, 0.7)):
        append_json(run.eval, eval_record(version, train_s=4.0 * version, success=success))
    append_json(run.events, ALARM)
    append_json(run.events, {"type": "finished", "at": 0.0, "complete": True, "reason": "", "version": 12})
    return run


def png_size(path: Path) -> tuple[int, int]:
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def test_the_report_holds_page_picture_and_json(run: RunDirectory) -> None:
    text = write_report(run)
    page = (run.report / "report.md").read_text()
    assert page.startswith("# run night: complete\n")
    assert "![learning curve](learning_curve.png)" in page
    for said in ("start 0.200", "gain +0.500", "rollout wait 25.0%", "ALARM at update 9", "generated 96,000"):
        assert said in page
        assert said in text
    assert png_size(run.report / "learning_curve.png") > (600, 600)
    stored = json.loads((run.report / "report.json").read_text())
    assert stored == report_json(run)
    assert stored["updates"] == 12


def test_a_run_with_nothing_yet_can_be_reported(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "young")
    assert "has not begun" in write_report(run)
    assert png_size(learning_curve(run)) > (600, 600)


def test_lines_without_their_fields_can_be_drawn(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "odd")
    append_json(run.metrics, {"step": 0, "train_s": None, "success": None, "learner": None, "lag": None})
    append_json(run.metrics, {"step": 1, "train_s": 3.0, "entropy": None, "groups": {}, "zero_variance": None})
    append_json(run.eval, eval_record(0, train_s=0, success=None, stderr=None))
    assert "2 updates" in write_report(run)


def test_json_and_text_of_an_empty_summary() -> None:
    empty = summarise("none", metrics=[], evals=[], events=[])
    assert json.loads(to_json(empty))["start"] is None
    assert render_text(empty).startswith("run none: not finished")


def test_running_mean_starts_with_what_there_is() -> None:
    assert running_mean([2.0, 4.0, 6.0, 8.0], 2) == [2.0, 3.0, 5.0, 7.0]
    assert running_mean([], 2) == []
