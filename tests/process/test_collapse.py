"""A collapse is provoked, named while the run goes on, and explained in the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.process.runner import Up, gone, run

PROVOKE = (
    "updates=30",
    "eval.every=0",
    "groups.candidates=8",
    "groups.per_update=8",
    "algorithm.distill_coef=1.0",
    "algorithm.hint_top_k=8",
    "algorithm.hint_support=1",
    "algorithm.steering=false",
    "learner.lr=5e-3",
    "alarms.patience=2",
)


@pytest.mark.process
@pytest.mark.vllm
@pytest.mark.timeout(500)  # where no start policy is cached, it is built first: two minutes
def test_distillation_without_measure_raises_an_alarm_that_says_what_to_change(tmp_path: Path) -> None:
    settings = [part for pair in PROVOKE for part in ("--set", pair)]
    up = Up(tmp_path, "--name", "t", *settings)
    alarm = up.until(lambda event: event["type"] == "alarm", within_s=450)
    assert alarm["name"] in ("entropy", "all_fail", "cut_actions")
    assert "algorithm.distill_coef" in alarm["advice"]
    up.interrupt()
    assert up.end(within_s=60) == 0
    assert gone(tmp_path) == []
    report = json.loads(run(tmp_path, "report", "t", "--json").stdout)
    assert alarm["name"] in {raised["name"] for raised in report["alarms"]}
    text = run(tmp_path, "report", "t").stdout
    assert "ALARM" in text
    assert "distill_coef" in text
