"""`envs check`: exit codes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stream_rl.cli import main


def test_a_flawless_trial(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["envs", "check", "household", "--player", "scripted", "--tasks", "3", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["world"], report["episodes"], report["solved"], report["faults"]) == ("household", 3, 3, {})
    assert {"steps_per_s", "invalid_share", "memory_mib", "restarts", "refused"} <= report.keys()


def test_a_world_that_fails_is_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    world = "tests.unit.envs.worlds:Hungry"  # its actions are numbers; others make it raise
    assert main(["envs", "check", world, "--tasks", "2", "--max-turns", "2"]) == 1
    assert "faults: 2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["househld"], "Did you mean `household`"),
        (["household", "--option", "levle=1"], "Did you mean `level`"),
        (["remote", "--player", "scripted"], "remote has no scripted player"),
        (["household", "--gold"], "say where it is with --data"),
        (["household", "--gold", "--data", "."], "household has nothing to replay"),
        (["webshop", "--transcripts", "nothing.json", "--data", "."], "nothing.json: no such file"),
    ],
)
def test_refusals_are_exit_code_2(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["envs", "check", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_proof_is_the_report_of_the_worlds_own_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "shelf"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "world.py").write_text("class Shelf: ...\n", encoding="utf-8")
    (package / "check.py").write_text(
        "def replay_gold(data, backend='a'):\n"
        "    return {'gold_total': 2, 'known_bad': 0, 'failed': [data.name, backend] if backend == 'b' else []}\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    command = ["envs", "check", "shelf.world:Shelf", "--gold", "--data", str(tmp_path), "--json"]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out) == {"gold_total": 2, "known_bad": 0, "failed": []}
    assert main([*command, "--option", "backend=b"]) == 1
    assert json.loads(capsys.readouterr().out)["failed"] == [tmp_path.name, "b"]
    assert main([*command, "--option", "engine=b"]) == 2
    assert "--option does not fit" in capsys.readouterr().err
