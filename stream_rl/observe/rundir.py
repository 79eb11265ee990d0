"""The run directory: where a run keeps everything, under names that people and scripts rely on."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stream_rl.errors import UsageError


class RunDirectory:
    """`runs/NAME/` and its files. Creating one makes the folders; `existing` refuses what is not a run."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def create(cls, root: Path) -> RunDirectory:
        """A new run. Raises `UsageError` when the folder already holds one."""
        if (root / "config.toml").exists():
            raise UsageError(f"{root} already holds a run; go on with --resume {root}, or choose another --name")
        run = cls(root)
        try:
            run.make_folders()
            (root / "run_id").write_text(secrets.token_hex(6), encoding="ascii")
        except OSError as error:
            raise UsageError(
                f"{root} cannot be made: {error.strerror}; start in a folder that can be written and has room"
            ) from None
        return run

    @classmethod
    def existing(cls, name: str, *, base: Path = Path("runs")) -> RunDirectory:
        """A run by folder or by name under `base`. Raises `UsageError` naming what is there instead."""
        for root in (Path(name), base / name):
            if (root / "config.toml").is_file() and (root / "run_id").is_file():
                return cls(root)
        known = sorted(p.parent.name for p in base.glob("*/run_id"))
        there = f"runs here: {', '.join(known[-8:])}" if known else f"there are no runs under {base}"
        raise UsageError(f"no run {name!r}; {there}")

    def make_folders(self) -> None:
        """Those that roles write to. A copied run may have lost the empty ones."""
        for folder in (self.checkpoints, self.logs, self.report):
            folder.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the run for this process. The lock goes with the process, however it ends.

        Raises `UsageError` while another process holds it.
        """
        with (self.root / "lock").open("w", encoding="ascii") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UsageError(f"{self.root} is running; stop it first (Ctrl-C where it was started)") from None
            yield

    @property
    def run_id(self) -> str:
        """Random name of this run, checked by everything that could meet leftovers of another."""
        return (self.root / "run_id").read_text(encoding="ascii").strip()

    @property
    def config(self) -> Path:
        """Resolved configuration, without secrets."""
        return self.root / "config.toml"

    @property
    def ledger(self) -> Path:
        """SQLite ledger."""
        return self.root / "ledger.sqlite"

    @property
    def judge_cache(self) -> Path:
        """Answers of the run's judges, so that none is paid for twice."""
        return self.root / "judge_cache.sqlite"

    @property
    def metrics(self) -> Path:
        """One JSON object an update."""
        return self.root / "metrics.jsonl"

    @property
    def eval(self) -> Path:
        """One JSON object an evaluation."""
        return self.root / "eval.jsonl"

    @property
    def events(self) -> Path:
        """What happened, one JSON object each."""
        return self.root / "events.jsonl"

    @property
    def checkpoints(self) -> Path:
        """`STEP/` folders."""
        return self.root / "checkpoints"

    @property
    def logs(self) -> Path:
        """`ROLE.log` files."""
        return self.root / "logs"

    @property
    def report(self) -> Path:
        """Plots and pages."""
        return self.root / "report"

    @property
    def policy(self) -> Path:
        """Text: the folder of the policy the run starts from."""
        return self.root / "policy"

    @property
    def address(self) -> Path:
        """Where the orchestrator listens, while it runs."""
        return self.root / "address"


def newest_run(base: Path = Path("runs")) -> RunDirectory:
    """The run that was started last among those that are running. Raises `UsageError` when none is."""
    running = [RunDirectory(file.parent) for file in base.glob("*/address")]
    if not running:
        raise UsageError(f"no run under {base} is running; name one with --run")
    return max(running, key=lambda run: run.address.stat().st_mtime)


def append_json(path: Path, record: Mapping[str, Any]) -> None:
    """Add one line. A reader never sees half of one: the line is written by one call."""
    line = json.dumps(record, separators=(",", ":"), allow_nan=False) + "\n"
    with path.open("a", encoding="utf-8") as file:
        file.write(line)


def read_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Records of a file that may still be written: a torn last line (kill -9) is left out."""
    if not path.exists():
        return
    with path.open(encoding="utf-8") as file:
        for line in file:
            if not line.endswith("\n"):
                return
            yield json.loads(line)


def keep_json_lines(path: Path, keep: int, key: str) -> None:
    """Drop records whose `key` is >= `keep` (they will be made again after a resume). Atomic."""
    if not path.exists():
        return
    kept = [r for r in read_json_lines(path) if r[key] < keep]
    temporary = path.with_suffix(".tmp")
    temporary.write_text("".join(json.dumps(r, separators=(",", ":")) + "\n" for r in kept), encoding="utf-8")
    os.replace(temporary, path)
