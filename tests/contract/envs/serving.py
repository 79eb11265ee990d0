"""`stream-rl envs serve`, in this venv or another one, as the tests use it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def interpreter(package: str) -> str:
    """A Python that has `package`: this one, or the one its variable names. Skips the test where there is none."""
    variable = f"STREAM_RL_{package.upper()}_PYTHON"
    if importlib.util.find_spec(package) is not None:
        return sys.executable
    if named := os.environ.get(variable):
        return named
    pytest.skip(f"{package} is not installed here, and {variable} names no Python that has it")


@contextmanager
def served(python: str, world: str, *arguments: str, path: Path | None = None) -> Iterator[str]:
    """The address of a served world; `path` is where modules of the test lie. The server is gone afterwards."""
    places = [str(ROOT), *([str(path)] if path else [])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "PYTHONUNBUFFERED": "1"}
    command = [python, "-m", "stream_rl.cli", "envs", "serve", world, "--port", "0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert " listens at http://" in line, f"it ended with exit code {process.wait()}"
            yield line.partition(" listens at ")[2].partition(";")[0]
        finally:
            process.terminate()
            code = process.wait(timeout=100)
    assert code == 0
