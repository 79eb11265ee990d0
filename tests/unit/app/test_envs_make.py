"""`envs make`: the module beside the world does it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stream_rl.cli import main


def test_the_worlds_own_module_makes_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "cellar"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "world.py").write_text("class Cellar: ...\n", encoding="utf-8")
    (package / "make.py").write_text(
        "def make_games(folder, *, games, seed):\n"
        "    return {'folder': folder, 'games': games, 'kinds': {'seed': seed, 'other': 1}}\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    command = ["envs", "make", "cellar.world:Cellar", "out", "--games", "7", "--seed", "3"]
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"folder": "out", "games": 7, "kinds": {"seed": 3, "other": 1}}
    assert main(command) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["games   7", "kinds   3 seed, 1 other"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["household", "out"], "household has nothing to make its data from"),
        (["alfwrld", "out"], "Did you mean `alfworld`"),
    ],
)
def test_refusals_are_exit_code_2(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["envs", "make", *arguments]) == 2
    assert said in capsys.readouterr().err
