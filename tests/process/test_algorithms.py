"""Every shipped algorithm as real processes, a few updates each: what is switched on leaves its traces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stream_rl.app.defaults import SHIPPED
from stream_rl.observe.rundir import read_json_lines
from stream_rl.orchestrator.ledger import Ledger
from tests.process.runner import Up, gone, overrides, run

pytestmark = [pytest.mark.process, pytest.mark.timeout(400)]

# What is asserted is the learner's; vLLM would start 10 s later.
ALL = (
    "generate.engine=transformers",
    "groups.candidates=4",
    "groups.per_update=4",
    "groups.size=4",
    "updates=2",
    "eval.every=0",
)


def _lines(folder: Path, config: str, *settings: str, within_s: float = 100.0) -> list[dict[str, Any]]:
    up = Up(folder, str(SHIPPED / config), "--name", "t", *overrides(*ALL, *settings))
    up.succeed(within_s=within_s)
    assert gone(folder) == []
    return list(read_json_lines(folder / "runs" / "t" / "metrics.jsonl"))


def test_gigpo(tmp_path: Path) -> None:
    lines = _lines(tmp_path, "embedded-gigpo.toml")
    assert len(lines) == 2
    assert all(line["tokens"]["judge"] == line["tokens"]["teacher"] == 0 for line in lines)
    report = json.loads(run(tmp_path, "report", "t", "--json").stdout)
    assert report["switches"]["advantage"] == "gigpo"


@pytest.mark.timeout(600)  # where no start policy is cached, it is built first: two minutes
def test_opsd_with_every_token_of_the_vocabulary_and_an_averaged_teacher(tmp_path: Path) -> None:
    lines = _lines(
        tmp_path,
        "embedded-opsd.toml",
        "algorithm.teacher=ema",
        "algorithm.divergence=jsd",
        "algorithm.hint_support=1",
        "algorithm.kl_coef=0.01",
        "policy.init=pretrained",  # an untrained policy shows no positive rubric
        "generate.max_turns=10",
        within_s=580,
    )
    assert sum(line["tokens"]["teacher"] for line in lines) > 0
    assert sum(line["distill"]["share"] or 0.0 for line in lines) > 0
    assert all(line["tokens"]["reference"] == line["sequence_tokens"] for line in lines)
    assert lines[1]["kl_reference"] >= 0
    assert (tmp_path / "runs" / "t" / "checkpoints" / "000002" / "teacher.safetensors").is_file()


@pytest.mark.vllm
@pytest.mark.timeout(600)  # where no start policy is cached, it is built first: some minutes
def test_orsd_with_the_policy_that_can_write(tmp_path: Path) -> None:
    """The policy's own bundles are scored and taught, and nothing of them reaches validation."""
    up = Up(
        tmp_path,
        str(SHIPPED / "embedded-orsd.toml"),
        "--name",
        "t",
        *(part for s in ("updates=3", "groups.candidates=8", "groups.per_update=8", "eval.tasks=8", "eval.every=3")
          for part in ("--set", s)),
    )  # fmt: skip
    up.succeed(within_s=580)
    root = tmp_path / "runs" / "t"
    lines = list(read_json_lines(root / "metrics.jsonl"))
    assert sum(line["tokens"]["writing"] for line in lines) > 0
    assert sum(line["tokens"]["judge"] for line in lines) > 0
    assert sum(line["tokens"]["teacher"] for line in lines) > 0
    shares = [line["orsd"]["malformed_share"] for line in lines]  # None where nothing was written since the last line
    assert max(share for share in shares if share is not None) < 0.5
    assert any(line["orsd"]["taught_share"] > 0 for line in lines)
    assert any((line["orsd"]["rho_mean"] or 0) > 0 for line in lines)
    assert any((line["distill"]["correction_abs"] or 0) > 0 for line in lines)
    ledger = Ledger(root / "ledger.sqlite", (root / "run_id").read_text())
    try:
        for row in ledger.groups():
            heads = [m.content for t in ledger.trajectories(row.group_id) for s in t.samples for m in s.head]
            assert not any(criterion in head for criterion in row.hint or () for head in heads)
    finally:
        ledger.close()
