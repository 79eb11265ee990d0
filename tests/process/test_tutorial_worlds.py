"""docs/tutorial-worlds.md does what it says: its blocks are written, run, and looked at."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stream_rl.observe.rundir import read_json_lines

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial-worlds.md"
_BLOCK = re.compile(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str) -> Iterator[tuple[str, str, str]]:
    """Language, file name and text of each block."""
    for found in _BLOCK.finditer(page):
        yield found.group(1), found.group(2) or "", found.group(3)


def script(page: str, folder: Path) -> str:
    """Writes the files; returns all commands as one script."""
    commands = ["set -euo pipefail"]
    for language, file, text in blocks(page):
        if file:
            (folder / file).write_text(text, encoding="utf-8")
        elif language == "sh":
            commands.append(text)
    return "\n".join(commands)


def test_every_block_is_a_file_a_command_or_an_illustration() -> None:
    found = list(blocks(PAGE.read_text(encoding="utf-8")))
    assert [file for _, file, _ in found if file] == ["cabinets.py", "cabinets.toml", "pyproject.toml"]
    assert {language for language, file, _ in found if not file} <= {"sh", "toml", "console"}
    assert PAGE.read_text(encoding="utf-8").count("```") == 2 * len(found)


def test_the_tutorial(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        # `pip install .` into a folder of the test, with what is installed here.
        "PYTHONPATH": str(packages),
        "PIP_TARGET": str(packages),
        "PIP_NO_DEPS": "1",
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # pip reads "no" here as "no isolation"
    }
    done = subprocess.run(
        ["bash", "-c", script(PAGE.read_text(encoding="utf-8"), tmp_path)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "solved" in done.stdout
    assert "50 of 50 episodes played" in done.stdout
    assert "cabinets   cabinets to open" in done.stdout
    assert "cabinets/train: 10 of 10 episodes played" in done.stdout
    lines = list(read_json_lines(tmp_path / "runs" / "cabinets" / "metrics.jsonl"))
    assert [line["step"] for line in lines] == [0]
    assert set(lines[0]["success"]["by_env"]) == {"cabinets:Cabinets"}
    evaluations = list(read_json_lines(tmp_path / "runs" / "cabinets" / "eval.jsonl"))
    assert [evaluation["step"] for evaluation in evaluations] == [0, 1]
