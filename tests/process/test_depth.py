"""`depth` with real runs: one is finished, the next is interrupted, and what there is comes out."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.runner import gone

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

CONFIG = Path(__file__).parents[2] / "configs" / "bench-latency.toml"
QUICK = (
    "generate.scripted.turn_s=0.01",
    "environments.0.options.step_s=0.001",
    "environments.0.workers=1",
    "judge.endpoints.0.delay_s=0.05",
)


def test_ctrl_c_prints_what_was_measured(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "stream_rl.cli", "depth", str(CONFIG), "--depths", "0,1", "--updates", "4"]
    command += ["--warmup", "1", "--name", "mine", "--json"]
    command += [part for pair in QUICK for part in ("--set", pair)]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stderr is not None
        try:
            first = next(line for line in process.stderr if line.startswith("1/2"))
            process.send_signal(signal.SIGINT)
            out, errors = process.communicate(timeout=250)
        finally:
            process.kill()
    assert "depth 0, seed 0" in first
    assert process.returncode == 130, errors
    (row,) = json.loads(out)
    assert (row["depth"], row["recommended"]) == (0, True)
    assert row["measured"]["updates"] == 4
    assert row["measured"]["lag_max"] == 0
    assert row["measured"]["judge_wait_s"] > 0.04
    assert row["measured"]["rollout_wait_s"] > 8 * 0.01
    assert row["simulated"]["update_s"] > 8 * 0.01
    assert "only one that was measured" in row["reason"]
    assert (tmp_path / "runs" / "mine-depth0-1" / "metrics.jsonl").is_file()
    assert gone(tmp_path) == []
