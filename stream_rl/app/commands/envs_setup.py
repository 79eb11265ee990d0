"""`envs setup`: a venv for a world whose packages cannot share ours. Repeating it repairs or does nothing."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from envs.appworld.venv import VARIABLE, default_folder, interpreter
from stream_rl.errors import EnvironmentFailed, UsageError

_PACKAGE = "appworld>=0.1.3,<0.2"
_WORKS = "import appworld.serve.environment"  # fails unless the package, what it needs and its apps are there
_VERSION = "import importlib.metadata; print(importlib.metadata.version('appworld'))"
_STANDARD_ERROR = 2


def setup(arguments: argparse.Namespace) -> int:
    """Make AppWorld's venv. Only the package index must be reachable. Raises `UsageError`, `EnvironmentFailed`."""
    folder = (Path(arguments.folder) if arguments.folder else default_folder()).absolute()
    python = interpreter(folder)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is no folder")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "pyvenv.cfg").is_file():
        raise UsageError(f"{folder} is no venv and not empty; name another folder")
    done: list[str] = []
    if not _runs(python, "-P", "-c", _WORKS):
        if not _runs(python, "-m", "pip", "--version"):
            _do(done, "made the venv", [sys.executable, "-m", "venv", str(folder)], "Python's own module venv")
        _do(
            done,
            "installed the package",
            [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", _PACKAGE],
            "the package index",
        )
        inside = {
            **os.environ,
            "APPWORLD_CACHE": str(folder / "cache"),
        }  # it unpacks tests too, into the home directory
        _do(
            done,
            "unpacked its apps",
            [str(python), "-P", "-m", "appworld.cli", "install"],
            "AppWorld's own installer",
            inside,
        )
        if not _runs(python, "-P", "-c", _WORKS, quiet=False):
            raise EnvironmentFailed(
                f"appworld: it is installed in {folder} but cannot be imported; remove the folder and repeat"
            )
    version = subprocess.run([python, "-P", "-c", _VERSION], capture_output=True, text=True, check=True).stdout.strip()
    if arguments.json:
        facts = {"world": "appworld", "version": version, "python": str(python), "done": done}
        sys.stdout.write(json.dumps(facts) + "\n")
    else:
        sys.stdout.write(told(version, folder, done))
    return 0


def told(version: str, folder: Path, done: list[str]) -> str:
    """What was done, and what comes next."""
    lines = [f"appworld {version} in {folder}: {', '.join(done) or 'all there, nothing to do'}"]
    if folder != default_folder().absolute():
        lines.append(f"say where it is: export {VARIABLE}={interpreter(folder)}")
    lines.append(f"get the tasks, once: {folder / 'bin' / 'appworld'} download data --root FOLDER")
    lines.append("then: stream-rl envs check appworld --data FOLDER --gold")
    return "\n".join(lines) + "\n"


def _runs(python: Path, *arguments: str, quiet: bool = True) -> bool:
    if not python.exists():
        return False
    shown = subprocess.DEVNULL if quiet else _STANDARD_ERROR
    return not subprocess.run([python, *arguments], stdout=shown, stderr=shown, check=False).returncode


def _do(done: list[str], what: str, command: list[str], who: str, environment: dict[str, str] | None = None) -> None:
    """One step; its output goes to standard error."""
    sys.stderr.write(f"$ {' '.join(command)}\n")
    sys.stderr.flush()
    code = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=_STANDARD_ERROR, env=environment, check=False
    ).returncode
    if code:
        raise EnvironmentFailed(
            f"appworld: {who} failed with exit code {code}, see above; repeat the command once that is mended"
        )
    done.append(what)
