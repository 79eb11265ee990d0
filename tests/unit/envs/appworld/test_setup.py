"""`envs setup appworld` over venvs in every state; the programs of the venv are stand-ins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envs.appworld.venv import VARIABLE, find_python
from stream_rl.cli import main

# Notes what it is asked to do. AppWorld can be imported once `appworld.cli install` has run; pip fails if told to.
PROGRAM = """#!/bin/sh
here=$(dirname "$0")
case "$*" in
  *"import appworld"*) test -e "$here/unpacked" ;;
  *"metadata"*) echo 0.1.3 ;;
  *"pip --version"*) ;;
  *"pip install"*) echo installed >> "$here/log"; test ! -e "$here/offline" ;;
  *"appworld.cli install"*) echo "unpacked with cache $APPWORLD_CACHE" >> "$here/log"; touch "$here/unpacked" ;;
  *) exit 9 ;;
esac
"""


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    folder = tmp_path / "venv"
    (folder / "bin").mkdir(parents=True)
    (folder / "pyvenv.cfg").touch()
    (folder / "bin" / "python").write_text(PROGRAM)
    (folder / "bin" / "python").chmod(0o755)
    return folder


def test_a_half_made_venv_is_mended_and_a_whole_one_left_alone(venv: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["envs", "setup", "appworld", str(venv), "--json"]) == 0
    facts = json.loads(capfd.readouterr().out)
    assert facts["python"] == str(venv / "bin" / "python")
    assert facts["done"] == ["installed the package", "unpacked its apps"]
    log = (venv / "bin" / "log").read_text()
    assert log == f"installed\nunpacked with cache {venv / 'cache'}\n"
    assert main(["envs", "setup", "appworld", str(venv)]) == 0
    told = capfd.readouterr().out
    assert "all there, nothing to do" in told
    assert f"export {VARIABLE}={venv / 'bin' / 'python'}" in told
    assert "appworld download data --root" in told
    assert (venv / "bin" / "log").read_text() == log


def test_a_step_that_fails_is_named_and_can_be_repeated(venv: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (venv / "bin" / "offline").touch()
    assert main(["envs", "setup", "appworld", str(venv)]) == 1
    assert "the package index failed with exit code 1" in capfd.readouterr().err
    (venv / "bin" / "offline").unlink()
    assert main(["envs", "setup", "appworld", str(venv)]) == 0


def test_a_folder_with_other_things_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.tex").touch()
    assert main(["envs", "setup", "appworld", str(tmp_path)]) == 2
    assert "is no venv and not empty" in capfd.readouterr().err
    assert main(["envs", "setup", "appworld", str(tmp_path / "thesis.tex")]) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["thesis.tex"]


def test_the_interpreter_is_found(venv: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    python = venv / "bin" / "python"
    monkeypatch.delenv(VARIABLE, raising=False)
    assert find_python(str(python)) == python
    monkeypatch.setenv("STREAM_RL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "appworld").symlink_to(venv)
    assert find_python("") == tmp_path / "cache" / "appworld" / "bin" / "python"
    monkeypatch.setenv(VARIABLE, str(python))
    assert find_python("") == python
