"""The whole stream as real processes: ZeroMQ, DeepSpeed, vLLM's CPU build, HTTP judge, SQLite."""

from __future__ import annotations

import json
import os
import re
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stream_rl.observe.rundir import read_json_lines
from tests.process.runner import Up, gone, overrides, pid_of, run

pytestmark = [pytest.mark.process, pytest.mark.timeout(500)]

TWO_JUDGES = 'judge.endpoints=[{url="embedded"},{url="embedded"}]'
PARTS = ("rollout_wait_s", "judge_wait_s", "prox_s", "teacher_s", "train_s", "publish_s", "other_s")


def _update(step: int) -> Callable[[dict[str, Any]], bool]:
    return lambda event: event["type"] == "update" and event["step"] >= step


def _left_outside(folder: Path, name: str) -> list[str]:
    """Weights, sockets and whatever else carries the run's id outside its directory."""
    run_id = (folder / "runs" / name / "run_id").read_text().strip()
    places = (Path("/dev/shm"), Path(tempfile.gettempdir()))
    return [str(p) for place in places for p in place.glob(f"*{run_id}*")]


def _accounts_add_up(lines: list[dict[str, Any]]) -> None:
    """Every second of every role in one state: the orchestrator's by the run's clock, a producer's in all its parts."""
    before = 0.0
    for line in lines:
        took, roles = line["wall_s"] - before, line["roles"]
        before = line["wall_s"]
        for role in ("orchestrator", "judging"):
            assert sum(roles[role].values()) == pytest.approx(took, rel=0.01, abs=0.05)
        assert line["cost"]["device_s"]["orchestrator"] == pytest.approx(took, rel=0.01, abs=0.05)
        if "producer-0" not in roles:
            continue  # a generator that skipped this version gave no account of it; the next line holds its time
        whole = sum(roles["producer-0"].values())
        parts = [name for name in roles if name.startswith("producer-0/")]
        assert {"producer-0/generator", "producer-0/environment/household"} <= set(parts)
        told = [sum(roles[part].values()) for part in parts]  # an update under way is held back, and not to the moment
        assert told == pytest.approx([whole] * len(parts), rel=0.01, abs=0.05)
        assert min(seconds for states in roles.values() for seconds in states.values()) > -1e-6
        arose = sum(int(lag) * n for counts in line["lag"]["by_origin"].values() for lag, n in counts.items())
        assert arose == sum(int(lag) * n for lag, n in line["lag"]["histogram"].items())
    slots, whole = (sum(sum(line[key].get("producer-0", {}).values()) for line in lines) for key in ("slots", "roles"))
    assert slots / whole == pytest.approx(round(slots / whole), rel=0.01)  # a whole number of places


def _sockets() -> set[str]:
    """Sockets as vLLM names them, by UUID, in the folder it takes unless it is told otherwise."""
    found = Path(tempfile.gettempdir()).iterdir()
    return {str(p) for p in found if re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", p.name)}


@pytest.mark.vllm
def test_the_whole_stream_with_vllm(tmp_path: Path) -> None:
    sockets = _sockets()
    up = Up(tmp_path, "--name", "t", *overrides("generate.engine=vllm", "updates=4", "async_depth=2"))
    up.succeed(within_s=400)
    assert gone(tmp_path) == []
    assert _left_outside(tmp_path, "t") == []
    assert _sockets() <= sockets
    run_dir = tmp_path / "runs" / "t"
    lines = list(read_json_lines(run_dir / "metrics.jsonl"))
    assert [line["step"] for line in lines] == [0, 1, 2, 3]
    for line in lines:
        learner = line["learner"]
        assert sum(learner[part] for part in PARTS) == pytest.approx(learner["total_s"], rel=0.01)
        assert line["lag"]["max"] <= 2
        assert line["version"] == line["step"] + 1
        assert line["groups"]["candidate"] == 4
        assert line["groups"]["selected"] == 2
        assert line["groups"]["discarded"]["not_selected"] == 2
        assert {"train", "by_env"} <= line["success"].keys()
        assert {"generated", "trained", "discarded", "judge", "teacher"} <= line["tokens"].keys()
        assert {"wall_s", "reward_mean", "loss", "kl_behavior", "entropy", "distill"} <= line.keys()
        assert {"all_pass", "all_fail"} <= line["zero_variance"].keys()
        assert {"d_mean", "d_std", "share"} <= line["distill"].keys()
        assert {"max", "mean", "histogram"} <= line["lag"].keys()
    _accounts_add_up(lines)
    assert sum(line["tokens"]["judge"] for line in lines) > 0
    first = lines[0]
    assert first["lag"]["max"] == 0
    assert first["kl_behavior"] < 1e-4  # float32 on both sides: sampler and learner agree
    evals = list(read_json_lines(run_dir / "eval.jsonl"))
    assert [e["step"] for e in evals] == [0, 4]
    assert [e["versions"] for e in evals] == [[0], [4]]
    assert (run_dir / "report" / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert (run_dir / "report" / "learning_curve.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert (run_dir / "checkpoints" / "000004" / "config.json").is_file()


def test_ctrl_c_stops_in_order_and_resume_goes_on(tmp_path: Path) -> None:
    """Exit code 0, a checkpoint, no process, no file in shared memory; then the rest, without gap or duplicate."""
    up = Up(tmp_path, "--name", "t", *overrides("generate.engine=transformers", "updates=500", "eval.every=0"))
    up.until(_update(1))
    status = run(tmp_path, "status", "t", "--json")
    assert json.loads(status.stdout)["phase"] == "training", status.stderr
    second = run(tmp_path, "up", "--resume", "t")
    assert second.returncode == 2
    assert "is running" in second.stderr
    up.interrupt()
    up.succeed(within_s=60)
    assert gone(tmp_path) == []
    assert _left_outside(tmp_path, "t") == []
    assert not (tmp_path / "runs" / "t" / "address").exists()
    saved = [int(e["version"]) for e in up.events if e["type"] == "checkpoint"]
    steps = [line["step"] for line in read_json_lines(tmp_path / "runs" / "t" / "metrics.jsonl")]
    assert saved[-1] == steps[-1] + 1
    last = saved[-1] + 4
    again = Up(tmp_path, "--resume", "t", "--set", f"updates={last}")
    again.succeed(within_s=200)
    lines = list(read_json_lines(tmp_path / "runs" / "t" / "metrics.jsonl"))
    assert [line["step"] for line in lines] == list(range(last))
    times = [line["train_s"] for line in lines]
    assert times == sorted(times)
    assert gone(tmp_path) == []


def test_a_second_ctrl_c_stops_at_once(tmp_path: Path) -> None:
    up = Up(tmp_path, "--name", "t", *overrides("generate.engine=transformers", "updates=500", "eval.every=0"))
    up.until(lambda event: event["type"] == "learner_ready")
    up.interrupt()
    up.until(lambda event: event["type"] == "stopping")
    up.interrupt()
    assert up.end() == 130
    assert gone(tmp_path) == []


def test_no_role_outlives_a_killed_supervisor(tmp_path: Path) -> None:
    up = Up(tmp_path, "--name", "t", *overrides("generate.engine=transformers", "updates=500", "eval.every=0"))
    up.until(_update(0))
    up.kill()
    assert gone(tmp_path, within_s=40) == []


def test_a_killed_producer_is_replaced_and_a_killed_learner_ends_the_run(tmp_path: Path) -> None:
    """Depth 0 stays on policy over the one; the other is told with its log and what to do. One run for both."""
    up = Up(
        tmp_path,
        *("--name", "t"),
        *overrides("generate.engine=transformers", "updates=100000", "async_depth=0", "eval.every=0", TWO_JUDGES),
    )
    before = up.until(_update(1))["step"]
    os.kill(pid_of(tmp_path, "role producer"), signal.SIGKILL)
    up.until(lambda event: event["type"] == "role_restarted")
    up.until(_update(before + 4))  # what was under way when the producer died, and more than that
    os.kill(pid_of(tmp_path, "role learner"), signal.SIGKILL)
    assert up.end(within_s=60) == 1
    (failed,) = (event for event in up.events if event["type"] == "failed")
    assert "learner-0" in failed["error"]
    assert gone(tmp_path) == []
    lines = list(read_json_lines(tmp_path / "runs" / "t" / "metrics.jsonl"))
    assert len(lines) >= 5
    assert [line["step"] for line in lines] == list(range(len(lines)))
    assert {line["lag"]["max"] for line in lines} == {0}
