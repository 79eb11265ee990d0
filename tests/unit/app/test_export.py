from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from learner.checkpoint_state import STATE_FILE
from stream_rl.cli import main
from stream_rl.observe.rundir import RunDirectory, append_json
from tests.unit.ledgers import clean_and_lost, write_run
from tests.unit.observe.samples import metrics_line

MODEL = ("chat_template.jinja", "config.json", "model.safetensors", "tokenizer.json")


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    made = write_run(tmp_path / "run", clean_and_lost())
    append_json(made.metrics, metrics_line(0, train_s=4.0))
    for version in (1, 2):
        folder = made.checkpoints / f"{version:06d}"
        (folder / "engine").mkdir(parents=True)
        for name in (*MODEL, STATE_FILE, "teacher.safetensors", "engine/shard.pt"):
            (folder / name).write_text(f"{name} of {version}", encoding="utf-8")
    return made


def export(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    code = main(["export", *map(str, arguments), "--json"])
    out, err = capsys.readouterr()
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(["export", *map(str, arguments)]) == 2
    return capsys.readouterr().err


def test_the_model_is_the_checkpoint_without_what_only_training_on_needs(
    run: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = export(capsys, run.root, "--to", tmp_path / "out", "--only", "model")
    assert facts["model"] == {"version": 2, "files": list(MODEL)}
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == list(MODEL)
    assert (tmp_path / "out" / "config.json").read_text(encoding="utf-8") == "config.json of 2"
    export(capsys, run.root, "--to", tmp_path / "old", "--only", "model", "--checkpoint", 1)
    assert (tmp_path / "old" / "config.json").read_text(encoding="utf-8") == "config.json of 1"


def test_model_and_trajectories_share_a_folder(
    run: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'stream-rl[parquet]'")
    (tmp_path / "out").mkdir()  # an empty one is as good as none
    facts = export(capsys, run.root, "--to", tmp_path / "out", "--trace", tmp_path / "deep" / "t.json")
    assert facts["trajectories"]["rows"] == 6
    assert facts["trace"]["groups"] == 3
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == sorted([*MODEL, "trajectories.parquet"])
    assert (tmp_path / "deep" / "t.json").is_file()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["deep", "out", "run"], "nothing half made is left"


def test_nothing_is_written_over(run: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("dear", encoding="utf-8")
    assert "is there already" in refused(capsys, run.root, "--to", tmp_path / "out")
    assert (tmp_path / "out" / "thesis.tex").read_text(encoding="utf-8") == "dear"


def test_an_incomplete_checkpoint_leaves_nothing_behind(
    run: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run.checkpoints / "000002" / "model.safetensors").unlink()
    told = refused(capsys, run.root, "--to", tmp_path / "out", "--only", "model")
    assert "lacks model.safetensors" in told
    assert "--checkpoint" in told
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "give --to DIR, --trace FILE"),
        (("--trace", "t.json", "--only", "model"), "give it with --to"),
        (("--to", "out", "--checkpoint", "7"), "no checkpoint of version 7; there are 1, 2"),
        (("--to", "out", "--only", "trajectories", "--checkpoint", "1"), "exports none"),
    ],
)
def test_wrong_usage_says_what_is_right(
    run: RunDirectory,
    arguments: tuple[str, ...],
    told: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert told in refused(capsys, run.root, *arguments)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run"]


def test_a_run_without_checkpoint_or_ledger_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = RunDirectory.create(tmp_path / "run")
    made.config.write_text("", encoding="utf-8")
    assert "no checkpoint yet" in refused(capsys, made.root, "--to", tmp_path / "out")
    assert "no ledger yet" in refused(capsys, made.root, "--trace", tmp_path / "t.json")
