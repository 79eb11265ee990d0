from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from stream_rl.app.plans import plans
from stream_rl.config import Config, Generate, Learner
from stream_rl.observe.rundir import RunDirectory


def _environments(folder: Path) -> dict[str, dict[str, str]]:
    """Variables of the roles that compute, by role."""
    (folder / "run_id").write_text("r", encoding="utf-8")
    config = Config(learner=Learner(threads=2), generate=Generate(threads=3))
    workers = plans(config, RunDirectory(folder), weights=folder).workers("tcp://127.0.0.1:1", "model")
    return {role.name: dict(role.environment) for role in workers}


def test_each_role_has_its_threads_and_none_spins_while_it_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    roles = _environments(tmp_path)
    assert {name: told["OMP_NUM_THREADS"] for name, told in roles.items()} == {"learner-0": "2", "producer-0": "3"}
    assert {told["OMP_WAIT_POLICY"] for told in roles.values()} == {"PASSIVE"}


def test_who_owns_the_cores_may_let_threads_spin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    assert {told["OMP_WAIT_POLICY"] for told in _environments(tmp_path).values()} == {"ACTIVE"}
