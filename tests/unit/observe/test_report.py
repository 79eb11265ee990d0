from __future__ import annotations

import json
import re
import struct
from pathlib import Path

import pytest

from stream_rl.config import from_dict, to_toml
from stream_rl.errors import UsageError
from stream_rl.observe.bars import condensed
from stream_rl.observe.plots import bins, learning_curve, running_half, running_mean
from stream_rl.observe.report import read_summary, render_text, report_json, to_json, write_report
from stream_rl.observe.rundir import RunDirectory, append_json
from stream_rl.observe.summary import summarise
from stream_rl.observe.theme import LIGHT
from tests.unit.observe.samples import ALARM, eval_record, metrics_line


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Twelve updates, the last of which has something for every chart."""
    run = RunDirectory.create(tmp_path_factory.mktemp("report") / "night")
    for i in range(11):
        append_json(run.metrics, metrics_line(i, train_s=4.0 * (i + 1)))
    line = metrics_line(11, train_s=48.0, wall_s=56.0)
    line["roles"]["orchestrator"] = {"handling": 0.5, "ledger": 0.5, "idle": 3.0}
    line["slots"] = {"producer-0": {"generate": 24.0, "wait_for_lease": 8.0}, "judging": {"asking": 2.0, "idle": 6.0}}
    line["levels"] = {"permits_taken": {"mean": 3.0, "max": 4}, "permits_free": {"mean": 1.0, "max": 4}}
    line["cost"] = {"device_s": {"learner": 4.0, "generators": 8.0}, "cpu_s": {"learner": 2.0}}
    line["loop_lag"] = {"mean_s": 0.001, "max_s": 0.25}
    line["lag"]["by_origin"] = {"generation": {"0": 12, "1": 4}, "judge": {"0": 12, "1": 4}}
    line["groups"]["discarded"] = {"stale": 2}
    append_json(run.metrics, line)
    for version, success in ((0, 0.2), (6, 0.45), (12, 0.7)):
        append_json(run.eval, eval_record(version, train_s=4.0 * version, success=success))
    append_json(run.events, ALARM)
    append_json(run.events, {"type": "finished", "at": 0.0, "complete": True, "reason": "", "version": 12})
    return run


@pytest.fixture(scope="module")
def text(run: RunDirectory) -> str:
    """What writing the report said."""
    return write_report(run)


def png_size(path: Path) -> tuple[int, int]:
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def test_the_report_holds_page_picture_and_json(run: RunDirectory, text: str) -> None:
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


def test_the_html_is_one_file_for_light_and_dark(run: RunDirectory, text: str) -> None:
    page = (run.report / "report.html").read_text(encoding="utf-8")
    assert f"{run.report / 'report.html'}" in text
    for outside in ("src=", "<script", "<link", "@import", 'href="http'):
        assert outside not in page
    assert not re.findall(r"url\((?!#)", page)
    assert "prefers-color-scheme: dark" in page
    assert page.count("<svg") == page.count("</svg>") == 8
    assert "COLOURS" not in page
    for light in LIGHT.values():
        assert light not in page.split("</style>")[1]  # drawings name their colours
    ids = re.findall(r'id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:url\(#|href="#)([^")]+)', page)) <= set(ids)
    for said in (
        "held-out success",
        "0.700",
        "What to change",
        "stale",
        "their oldest token was older",
        "0.250 s late",
    ):
        assert said in page
    for name in ("success", "time", "roles", "lag", "health", "levels", "cost", "discarded"):
        assert png_size(run.report / f"{name}.png")[0] > 600


def test_text_of_a_run_cannot_become_markup(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "<b>odd")
    line = metrics_line(0, train_s=4.0)
    line["groups"]["discarded"] = {"<script>alert(1)</script>": 9}
    append_json(run.metrics, line)
    write_report(run)
    page = (run.report / "report.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "<b>" not in page
    assert "&lt;b&gt;odd" in page


def test_switches_and_costs_stand_in_page_and_json(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "orsd")
    run.config.write_text(
        to_toml(from_dict({"algorithm": {"entropy_coef": 0.001, "advantage": "dr_grpo"}})), encoding="utf-8"
    )
    line = metrics_line(0, train_s=4.0)
    line["tokens"] |= {"judge": 500, "judge_prompt": 400, "judge_completion": 100, "reference": 700, "writing": 6000}
    line["judge"] = {"price": 0.0125}
    line["rollouts"] = {"discarded": {"stale": 8}}
    line["cost"] = {"cpu_s": {"generators": 20.0, "learner": 12.0}}
    line["invalid_trajectories"] = 2
    line["orsd"] = {"rho_mean": 0.41, "undefined_share": 0.125, "malformed_share": 0.03, "bank_share": 0.5}
    append_json(run.metrics, line)
    page = render_text(read_summary(run))
    for said in (
        "advantage dr_grpo, loss clip, correction decoupled, selection all, steering off, distillation none, "
        "teacher current, rubrics vocabulary",
        "other options: entropy coef 0.001",
        "reference 700, writing 6,000",
        "judge: 400 prompt and 100 completion tokens, price 0.0125",
        "CPU seconds used: generators 20 s, learner 12 s",
        "rollouts discarded: stale 8; 2 failed",
        "chosen bundles correlate with the outcomes at +0.41",
        "12% of the groups had no defined correlation",
        "3% of the answers held no usable bundle",
        "50% of the choices where the bank made an offer went to it",
    ):
        assert said in page
    facts = report_json(run)
    assert facts["switches"]["advantage"] == "dr_grpo"
    assert facts["switches"]["entropy_coef"] == 0.001
    assert facts["tokens"]["judge_prompt"] == 400
    assert facts["judge_price"] == 0.0125
    assert facts["discarded_rollouts"] == {"stale": 8}
    assert facts["failed_rollouts"] == 2
    assert facts["orsd"]["bank_share"] == 0.5


def test_a_configuration_at_its_defaults_is_said_to_be(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "plain")
    run.config.write_text(to_toml(from_dict({})), encoding="utf-8")
    append_json(run.metrics, metrics_line(0, train_s=4.0))
    text = render_text(read_summary(run))
    assert "other options: all at their defaults" in text
    assert "judge: " not in text
    assert "written rubrics" not in text


def test_a_spoilt_configuration_is_named(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "spoilt")
    run.config.write_text("[algorithm\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"config\.toml is not valid TOML"):
        report_json(run)


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


def test_the_interval_of_a_running_mean_is_students() -> None:
    """Of 1, 2, 3: standard deviation 1, and 4.303 / sqrt(3) of it on either side. Of 1, 2, 3, 4, 5: variance 2.5."""
    half = running_half([1.0, 2.0, 3.0, 4.0, 5.0])
    assert half[:2] == [None, None]
    assert half[2] == pytest.approx(4.303 / 3**0.5)
    assert half[4] == pytest.approx(2.776 * (2.5 / 5) ** 0.5)


def test_bins_cover_everything_once() -> None:
    for count in (0, 1, 7, 120, 10_001):
        parts = bins(count, 120)
        assert [i for part in parts for i in range(part.start, part.stop)] == list(range(count))
        sizes = [part.stop - part.start for part in parts]
        assert len(parts) == min(count, 120)
        assert max(sizes, default=0) - min(sizes, default=0) <= 1


def test_many_roles_of_a_kind_become_one_row() -> None:
    roles = {f"producer-{i}/generator": {"generate": 0.75, "idle": 0.25} for i in range(7)}
    assert condensed({"learner": {"train": 1.0}, **roles}) == {
        "learner": {"train": 1.0},
        "7 x producer/generator": {"generate": 0.75, "idle": 0.25},
    }
