"""Our loss on our batches under real DeepSpeed on gloo, against plain torch; resume; the service over ranks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[2]
DEADLINE_S = 280


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def run_ranks(folder: Path, num_ranks: int, worker: str = "deepspeed_worker", *arguments: str) -> dict[str, Any]:
    """Start the ranks of a worker module, and return what rank 0 found."""
    common = {**os.environ, "WORLD_SIZE": str(num_ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    processes: list[subprocess.Popen[bytes]] = []
    logs = [folder / f"rank{rank}.log" for rank in range(num_ranks)]
    try:
        for rank, log in enumerate(logs):
            with log.open("wb") as out:
                processes.append(
                    subprocess.Popen(
                        [sys.executable, "-m", f"tests.process.{worker}", str(folder), *arguments],
                        cwd=ROOT,
                        env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"},
                        stdout=out,
                        stderr=subprocess.STDOUT,
                    )
                )
        codes = [process.wait(DEADLINE_S) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert codes == [0] * num_ranks, "\n".join(log.read_text()[-3000:] for log in logs)
    found: dict[str, Any] = msgspec.json.decode((folder / "result.json").read_bytes())
    return found


@pytest.fixture(scope="module", params=[1, 2], ids=["one_rank", "two_ranks"])
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run_ranks(tmp_path_factory.mktemp(f"ranks{request.param}"), request.param)


@pytest.mark.parametrize("stage", ["0", "1", "2", "3"])
def test_three_updates_equal_plain_torch(found: dict[str, Any], stage: str) -> None:
    result = found["equal"][stage]
    assert result["steps"] == 6  # 3 updates of 2 mini-batches
    assert result["names"]
    assert result["moved"] > 1e-3
    assert result["difference"] < 2e-6
    assert result["norm_difference"] < 1e-5


@pytest.mark.parametrize("stage", ["0", "1", "3"])
def test_half_precision_trains(found: dict[str, Any], stage: str) -> None:
    result = found["bfloat16"][stage]
    norm_in_float32 = found["bfloat16"]["reference_norm"]
    assert result["dtypes"] == ["torch.bfloat16"]
    assert result["moved"] > 0
    assert result["norm"] == pytest.approx(norm_in_float32, rel=0.1)


@pytest.mark.parametrize("stage", ["0", "1", "3"])
def test_resume_is_bit_identical(found: dict[str, Any], stage: str) -> None:
    result = found["resume"][stage]
    assert result["version"] == 2
    assert len(set(result["fingerprints"])) == 1


@pytest.mark.parametrize("stage", ["0", "1", "3"])
def test_checkpoint_is_a_model_folder_with_the_published_weights(found: dict[str, Any], stage: str) -> None:
    result = found["resume"][stage]
    assert result["export"] == result["published"]
    assert {"config.json", "model.safetensors", "chat_template.jinja", "engine", "state.json"} <= set(result["files"])
    assert result["latest"] == "000004"


def test_checkpoint_of_another_zero_stage_is_refused(found: dict[str, Any]) -> None:
    assert "its ZeRO stage (learner.zero_stage) is 1, this learner's is 2" in found["resume"]["1"]["refusal"]


def test_service_trains_publishes_refuses_and_saves(found: dict[str, Any]) -> None:
    serve = found["serve"]
    published = [m["manifest"] for m in serve["sent"] if m["type"] == "Published"]
    ready, first, refused, second, saved = (m for m in serve["sent"] if m["type"] != "Published")
    kinds = ["LearnerReady", "Trained", "GroupRefused", "Trained", "CheckpointSaved"]
    assert [m["type"] for m in serve["sent"] if m["type"] != "Published"] == kinds
    assert [manifest["version"] for manifest in published] == [1, 2]
    assert serve["acked"][0] == serve["acked"][1]
    assert (ready["version"], first["version"], second["version"]) == (0, 1, 2)
    assert len({ready["manifest"]["fingerprint"], *(manifest["fingerprint"] for manifest in published)}) == 3
    assert first["group_ids"] == ["a", "b", "c"]
    assert (refused["update"], refused["group_id"]) == (1, "old")
    assert "lag 1" in refused["reason"]
    assert second["group_ids"] == ["a", "b", "c"]
    assert first["checkpoint"] is None
    assert second["checkpoint"] == saved["path"]
    assert "model.embed_tokens.weight" in serve["published_names"]
    assert "lm_head.weight" not in serve["published_names"]  # tied


def test_learner_time_adds_up(found: dict[str, Any]) -> None:
    messages = [m for m in found["serve"]["sent"] if m["type"] == "Trained"]
    assert len(messages) == 2
    for message in messages:
        parts = dict(message["metrics"]["learner"])
        total = parts.pop("total_s")
        assert set(parts) == {
            "rollout_wait_s",
            "judge_wait_s",
            "prox_s",
            "teacher_s",
            "train_s",
            "publish_s",
            "other_s",
        }
        assert sum(parts.values()) == pytest.approx(total, rel=1e-6)
        assert all(seconds >= 0 for seconds in parts.values())
        assert parts["train_s"] > 0
        assert parts["publish_s"] > 0
