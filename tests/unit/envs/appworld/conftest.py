"""A data folder, an interpreter that has a stand-in for AppWorld, and servers of it that somebody else runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from envs.appworld import fleets

STANDIN = Path(__file__).parent / "standin"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    datasets = tmp_path / "root" / "data" / "datasets"
    datasets.mkdir(parents=True)
    (datasets / "train.txt").write_text("a_1\nbroken_1\n\nc_1:tagged\n")
    (datasets / "dev.txt").write_text("d_1\n")
    return tmp_path / "root"


@pytest.fixture
def python(tmp_path: Path) -> Iterator[Path]:
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{STANDIN}" exec "{sys.executable}" "$@"\n')
    script.chmod(0o755)
    yield script
    fleets.close_all()


@pytest.fixture
def serve() -> Iterator[Callable[[], tuple[str, subprocess.Popen[str]]]]:
    """Starts a server; its address and process."""
    with ExitStack() as stack:

        def start() -> tuple[str, subprocess.Popen[str]]:
            program = STANDIN / "appworld" / "serve" / "environment.py"
            process = stack.enter_context(
                subprocess.Popen([sys.executable, "-P", program], stdout=subprocess.PIPE, text=True)
            )
            stack.callback(process.kill)
            assert process.stdout is not None
            return f"http://127.0.0.1:{process.stdout.readline().strip()}", process

        yield start
        fleets.close_all()
