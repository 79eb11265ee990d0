"""Wrong configurations: one clear message, the right exit code, no traceback."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.runner import run

pytestmark = [pytest.mark.process, pytest.mark.timeout(200)]


@pytest.fixture
def busy_port() -> Iterator[int]:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield int(holder.getsockname()[1])


HEAVY = ("torch", "vllm", "transformers", "numpy", "deepspeed", "zmq", "aiohttp")
WRONG: dict[str, tuple[list[str], int, str]] = {
    "unknown key": (["--set", "groups.sise=4"], 2, "groups.sise: unknown key.*Did you mean `groups.size`"),
    "unknown table": (["--set", "gropus.size=4"], 2, "gropus: unknown key.*Did you mean `groups`"),
    "wrong type": (["--set", "groups.size=many"], 2, "groups.size: 'many'.*expected `int`"),
    "negative depth": (["--set", "async_depth=-1"], 2, "async_depth: -1"),
    "buffer smaller than a round": (["--set", "groups.buffer=3"], 2, "groups.buffer: .*never holds a round"),
    "too few candidates": (["--set", "groups.candidates=1"], 2, "groups.candidates: 1 candidates cannot fill"),
    "unknown environment": (
        ["--set", "environments.0.name=houshold"],
        2,
        "environments.0.name: .*Did you mean `household`",
    ),
    "unknown world option": (["--set", "environments.0.options={levle=1}"], 2, "environments.0.options: "),
    "missing model folder": (["--set", "policy.model=./no/such/model"], 2, "policy.model: '?./no/such/model"),
    "missing relative folder": (["--set", "policy.model=models/mine"], 2, "policy.model: 'models/mine'"),
    "scripted engine": (["--set", "generate.engine=scripted"], 2, "generate.engine: 'scripted'"),
    "data for a world without": (["--set", "environments.0.data=x"], 2, "environments.0.options: "),
    "judge port": (["--set", "judge.endpoints.0.url=http://localhost:abc/v1"], 2, "judge.endpoints.0.url"),
    "unreachable judge": (["--set", "judge.endpoints.0.url=http://127.0.0.1:9/v1"], 1, "no connection to 127.0.0.1"),
    "missing key": (["--set", "judge.endpoints.0.key_env=NO_SUCH_KEY"], 2, "NO_SUCH_KEY is not set"),
    "missing vocabulary": (["--set", "judge.vocabulary=none.toml"], 2, "judge.vocabulary: 'none.toml' cannot be read"),
    "no such file": (["no-such.toml"], 2, "no such configuration file"),
    "no such run": (["--resume", "nothing"], 2, "no run 'nothing'"),
    "bad override": (["--set", "groups"], 2, "expected KEY=VALUE"),
    "weights folder": (
        ["--set", "weights.directory=/proc/none"],
        2,
        "weights.directory: '/proc/none' cannot be written",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_configuration_is_refused_clearly_and_before_anything_starts(name: str, tmp_path: Path) -> None:
    arguments, code, message = WRONG[name]
    result = run(tmp_path, "up", *arguments)
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr + result.stdout
    assert len(result.stderr.strip().splitlines()) == 1
    assert re.search(message, result.stderr), result.stderr
    assert not (tmp_path / "runs").exists()


def test_a_port_in_use_is_named(busy_port: int, tmp_path: Path) -> None:
    result = run(tmp_path, "up", "--set", f"port={busy_port}")
    assert result.returncode == 2
    assert f"port: {busy_port} cannot be bound" in result.stderr


def test_help_loads_nothing_heavy() -> None:
    """Speed of --help is a matter of imports: none of these may be loaded."""
    program = (
        "import sys; from stream_rl import cli; cli.parser().format_help();"
        f"print([m for m in {HEAVY} if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_listing_worlds_and_pinging_nobody(tmp_path: Path) -> None:
    worlds = json.loads(run(tmp_path, "envs", "list", "--json").stdout)
    assert "household" in {world["name"] for world in worlds}
    ping = run(tmp_path, "judge", "ping", "http://127.0.0.1:9/v1", "--json")
    report = json.loads(ping.stdout)
    assert ping.returncode == 1
    assert report["ok"] is False
    assert report["problem"]


def test_a_household_episode_can_be_played(tmp_path: Path) -> None:
    played = subprocess.run(
        [sys.executable, "-m", "stream_rl.cli", "envs", "play", "household", "--index", "3"],
        cwd=tmp_path,
        input="look\ngo to nowhere\n\n",
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert "Your task is to" in played.stdout
    assert "Nothing happens" in played.stdout
    assert played.returncode == 1
