"""How a command's end reaches the terminal and the shell."""

from __future__ import annotations

import errno
import runpy
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from stream_rl import cli
from stream_rl.app.commands import status
from stream_rl.errors import ConfigError, JudgeFailed, UsageError

Ending = Callable[[BaseException], int]


@pytest.fixture
def ending(monkeypatch: pytest.MonkeyPatch) -> Ending:
    """Run a command that ends with an error."""

    def run(error: BaseException) -> int:
        def fail(arguments: Any) -> int:
            raise error

        monkeypatch.setattr(status, "run", fail)
        return cli.main(["status", "t"])

    return run


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UsageError("no run 't'"), 2, "no run 't'"),
        (JudgeFailed("nobody answers"), 1, "nobody answers"),
        (ExceptionGroup("of a task group", [ConfigError("page.port", "port 7 is in use.")]), 2, "page.port: port 7"),
        (OSError(errno.EROFS, "Read-only file system", "runs"), 1, "runs: Read-only file system; work in a folder"),
    ],
)
def test_what_is_known_is_one_sentence_and_an_exit_code(
    error: Exception, code: int, said: str, ending: Ending, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ending(error) == code
    told = capsys.readouterr().err
    assert told.startswith(f"stream-rl status: {said}")
    assert len(told.splitlines()) == 1


@pytest.mark.parametrize("error", [KeyError("bug"), ExceptionGroup("g", [UsageError("no"), KeyError("bug")])])
def test_a_bug_leaves_with_its_traceback(error: Exception, ending: Ending) -> None:
    with pytest.raises(type(error)) as caught:
        ending(error)
    assert caught.value is error


def test_ctrl_c_in_a_task_group_is_a_ctrl_c(ending: Ending) -> None:
    assert ending(BaseExceptionGroup("g", [KeyboardInterrupt()])) == 130


def test_python_m_stream_rl_is_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["stream_rl", "--version"])
    with pytest.raises(SystemExit) as caught:
        runpy.run_module("stream_rl", run_name="__main__")
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("stream-rl ")


def test_no_command_loads_heavy_packages_before_it_needs_them() -> None:
    program = (
        "import importlib, pkgutil, sys, stream_rl.app.embedded_policy, stream_rl.app.commands as commands\n"
        "names = [entry.name for entry in pkgutil.iter_modules(commands.__path__)]\n"
        "loaded = [importlib.import_module(f'stream_rl.app.commands.{name}') for name in names]\n"
        "assert len(loaded) > 10\n"
        "heavy = {'torch', 'transformers', 'vllm', 'deepspeed', 'matplotlib'} & set(sys.modules)\n"
        "sys.exit(', '.join(sorted(heavy)) or 0)"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
