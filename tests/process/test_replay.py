"""`replay` interrupted by Ctrl-C, and the same command again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.runner import run
from tests.unit.app.test_replay import RISED, episodes
from tests.unit.ledgers import Group, write_run

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

COUNT = 1500


def _default_interrupt() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell that starts tests in the background has it ignored


def test_it_goes_on_from_where_it_was_interrupted(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "r", [Group(id="g0", episodes=tuple(episodes(COUNT)))], config=RISED)
    command = [sys.executable, "-m", "stream_rl.cli", "replay", "r"]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_default_interrupt,
    ) as first:
        assert first.stderr is not None
        assert "rollouts judged" in first.stderr.readline()
        first.send_signal(signal.SIGINT)
        rest = first.stderr.read()
        assert first.wait(100) == 130, rest
    assert "the same command goes on from here" in rest
    assert list((tmp_path / "runs" / "r" / "replay").glob("*.json")) == []
    second = run(tmp_path, "replay", "r", "--json")
    facts = json.loads(second.stdout)
    assert facts["judged"] == COUNT
    assert facts["from_cache"] > 0
