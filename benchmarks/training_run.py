"""One real run of `stream-rl up`, in a folder of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from stream_rl.observe.rundir import RunDirectory


def train(folder: Path, name: str, config: Path, overrides: Sequence[str]) -> RunDirectory:
    """Train to the end; `folder`/`name`.log holds what it prints. A run that fails ends this process with its words."""
    command = [sys.executable, "-m", "stream_rl.cli", "up", str(config), "--name", name, "--json"]
    command += [part for override in overrides for part in ("--set", override)]
    log = folder / f"{name}.log"
    with log.open("w", encoding="utf-8") as output:
        code = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False
        ).returncode
    if code:
        sys.exit(f"run {name} failed:\n{log.read_text(encoding='utf-8')[-2000:]}")
    return RunDirectory(folder / "runs" / name)
