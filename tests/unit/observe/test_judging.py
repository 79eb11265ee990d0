from __future__ import annotations

import json
import sqlite3
import struct
from pathlib import Path

import pytest

from stream_rl.link.codec import pack
from stream_rl.observe.judging import judging_facts, judging_lines, quantile
from stream_rl.observe.report import report_json, write_report
from stream_rl.observe.rundir import RunDirectory, append_json
from stream_rl.orchestrator.ledger import Ledger
from stream_rl.types import Scores, Tag, TagValue, Verdict
from tests.unit.judge.builders import CLEAN
from tests.unit.ledgers import Group, write_run
from tests.unit.observe.samples import metrics_line

RUBRICS = ("look.far", "look.near", "care.slow")


def verdict(name: str, *values: TagValue, seconds: float = 0.0) -> Verdict:
    tags = tuple(Tag(rubric=r, value=v) for r, v in zip(RUBRICS, values, strict=True))
    silent = all(v == "abstained" for v in values)
    return Verdict(trajectory_id=name, tags=tags, model="" if silent else "wise", seconds=seconds)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """Four rollouts in two worlds, one of them without any answer, and two tagged twice."""
    groups = [
        Group(id="g0", episodes=(CLEAN, CLEAN), environment="home"),
        Group(id="g1", episodes=(CLEAN, CLEAN), environment="shop"),
    ]
    first = [
        verdict("g0/0", "positive", "violation", "not_applicable", seconds=1.0),
        verdict("g0/1", "positive", "violation", "abstained", seconds=3.0),
        verdict("g1/0", "violation", "positive", "positive", seconds=2.0),
        verdict("g1/1", "abstained", "abstained", "abstained", seconds=9.0),
    ]
    run = write_run(tmp_path / "judged", groups, {v.trajectory_id: v for v in first})
    writer = sqlite3.connect(run.ledger)
    writer.execute("CREATE TABLE IF NOT EXISTS second_verdicts (trajectory_id TEXT PRIMARY KEY, record BLOB NOT NULL)")
    for second in (
        verdict("g0/0", "positive", "positive", "not_applicable"),
        verdict("g1/0", "violation", "positive", "abstained"),
    ):
        writer.execute("INSERT INTO second_verdicts VALUES (?, ?)", (second.trajectory_id, pack(second)))
    writer.commit()
    writer.close()
    for step in range(2):
        append_json(run.metrics, metrics_line(step, train_s=4.0) | {"judge": {"seconds_mean": 2.5, "price": 0.25}})
    return run


def test_facts_by_hand(run: RunDirectory) -> None:
    facts = judging_facts(run)
    assert facts is not None
    assert (facts.verdicts, facts.silent, facts.models) == (4, 1, {"wise": 3})
    assert facts.overall.tags == 12
    assert facts.overall.coverage == pytest.approx(8 / 12)
    home = facts.environments["home"]  # 2 positive, 2 violations, 1 not applicable, 1 abstained
    assert (home.positive, home.violation, home.not_applicable) == (2 / 5, 2 / 5, 1 / 5)
    assert facts.skills["home"]["look"].violation == 0.5
    assert facts.skills["home"]["care"].coverage == 0.5
    assert facts.rubrics["shop"]["look.far"].violation == 1.0
    assert facts.seconds == {"mean": 2.5, "p50": 2.0, "p95": 9.0}
    assert facts.price == 0.5
    # pairs: p-p, v-p, n-n, v-v, p-p equal 4 of 5; first 2 p, 2 v, 1 n; second 3 p, 1 v, 1 n: chance (6 + 2 + 1) / 25
    assert facts.agreement is not None
    assert facts.agreement.overall.kappa == pytest.approx((20 - 9) / (25 - 9))
    assert facts.agreement.overall.left_out == 1


def test_words_name_what_is_missing(run: RunDirectory) -> None:
    facts = judging_facts(run)
    assert facts is not None
    text = "\n".join(judging_lines(facts))
    for said in (
        "4 verdicts (wise 3), 66.6% of the tags decided; nothing at all in 1 of them",
        "an answer took 2.5 s on average (p50 2 s, p95 9 s), price 0.5",
        "2 rollouts tagged twice: kappa 0.69, 80% of 5 tags equal, 1 left out as abstained",
        "most abstained: care.slow 50%, look.far 25%, look.near 25%",
        "home: 40% positive, 40% violation, 20% not applicable; most violated: look.near 100%",
    ):
        assert said in text


def test_page_json_and_picture_of_a_report_hold_it(run: RunDirectory) -> None:
    text = write_report(run)
    page = (run.report / "report.md").read_text()
    assert "## Judge" in page
    assert "![tag rates](tag_rates.png)" in page
    assert "tagged twice: kappa 0.69" in text
    stored = json.loads((run.report / "report.json").read_text())
    assert stored == report_json(run)
    assert stored["judge"]["overall"]["coverage"] == pytest.approx(8 / 12)
    assert stored["judge"]["agreement"]["by_rubric"]["look.near"]["pairs"] == 2
    data = (run.report / "tag_rates.png").read_bytes()
    width, height = struct.unpack(">II", data[16:24])
    assert width > 500
    assert height > 150


def test_a_run_without_verdicts_has_no_section(tmp_path: Path) -> None:
    run = write_run(tmp_path / "plain", [Group(id="g0", episodes=(CLEAN,))], {})
    assert judging_facts(run) is None
    assert report_json(run)["judge"] is None
    assert "## Judge" not in write_report(run)
    assert not (run.report / "tag_rates.png").exists()


def test_a_run_that_only_scores_says_how_many_scores_are_missing(tmp_path: Path) -> None:
    run = write_run(tmp_path / "scored", [Group(id="g0", episodes=(CLEAN, CLEAN))], {})
    ledger = Ledger(run.ledger, run.run_id)
    ledger.add_scores(Scores(trajectory_id="g0/0", scores=(0.5, None, 1.0), seconds=1.0))
    ledger.add_scores(Scores(trajectory_id="g0/1", scores=(0.0,), seconds=3.0))
    ledger.close()
    facts = judging_facts(run)
    assert facts is not None
    assert (facts.verdicts, facts.scored, facts.missing_scores) == (0, 2, 0.25)
    text = write_report(run)
    assert "2 rollouts scored by written criteria, 25.0% of the scores missing" in text
    assert "an answer took - s on average (p50 1 s, p95 3 s)" in text
    assert not (run.report / "tag_rates.png").exists()


def test_quantiles_are_values_that_were_measured() -> None:
    assert quantile([], 0.5) is None
    assert quantile([4.0], 0.95) == 4.0
    assert quantile([3.0, 1.0, 2.0, 4.0], 0.5) == 2.0
    assert quantile([float(i) for i in range(1, 101)], 0.95) == 95.0
