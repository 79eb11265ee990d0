"""Names of built policies, found again without their recipe."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stream_rl.app import known_policies
from stream_rl.app.embedded_sources import RECIPES, SOURCES, WRITER_SOURCES
from stream_rl.app.known_policies import recall, remember


def built(cache: Path, name: str) -> Path:
    folder = cache / name
    folder.mkdir()
    return folder


def test_a_policy_is_found_by_its_name_as_long_as_it_is_there(tmp_path: Path) -> None:
    assert recall(tmp_path, "embedded") is None
    folder = built(tmp_path, "embedded-1")
    remember(tmp_path, "embedded", folder)
    assert recall(tmp_path, "embedded") == folder
    assert recall(tmp_path, "embedded-tiny") is None
    folder.rmdir()
    assert recall(tmp_path, "embedded") is None


def test_a_changed_source_forgets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remember(tmp_path, "embedded", built(tmp_path, "embedded-1"))
    monkeypatch.setattr(known_policies, "RECIPES", (*RECIPES, ("stream_rl.link", ("flow.py",))))
    assert recall(tmp_path, "embedded") is None
    newer = built(tmp_path, "embedded-2")
    remember(tmp_path, "embedded", newer)
    assert recall(tmp_path, "embedded") == newer


def test_a_start_finds_the_policy_of_the_one_before_without_torch(tmp_path: Path) -> None:
    folder = built(tmp_path, "embedded-tiny-1")
    remember(tmp_path, "embedded-tiny", folder)
    program = (
        "import sys, pathlib\n"
        "from stream_rl.app.embedded_policy import ensure_policy\n"
        f"print(ensure_policy('embedded', 'random-tiny', pathlib.Path({str(tmp_path)!r}), print))\n"
        "sys.exit('torch' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert found.stdout.strip() == str(folder)
    assert found.returncode == 0, found.stderr


def test_the_sources_of_a_key_are_what_they_were() -> None:
    """They decide the keys of all policies that anyone has built."""
    assert SOURCES == (
        ("envs.household", None),
        ("learner", ("imitation.py", "small_models.py")),
        ("stream_rl.app", ("embedded_demos.py", "embedded_tokenizer.py")),
    )
    assert WRITER_SOURCES == (
        ("judge.rules", None),
        ("stream_rl.app", ("embedded_writing.py",)),
        ("stream_rl.rubrics", ("behaviour.py", "writing.py")),
        ("stream_rl.rubrics.prompts", ("write_compact_v1.txt",)),
    )
