"""What a role says when it ends."""

from __future__ import annotations

from typing import Any

import pytest

from stream_rl.app.child import last_words
from stream_rl.errors import ConfigError, GeneratorBroken


@pytest.mark.parametrize(
    ("error", "said", "exit_code"),
    [
        (ExceptionGroup("a", [ExceptionGroup("b", [ConfigError("port", "7 is in use.")])]), "port: 7 is in use.", 2),
        (ExceptionGroup("a", [GeneratorBroken("gone"), KeyError("bug")]), "gone; KeyError: 'bug'", 1),
        (ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero", 1),
    ],
)
def test_the_supervisor_hears_the_errors_themselves_and_the_log_has_their_traceback(
    error: Exception, said: str, exit_code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[dict[str, Any]] = []
    assert last_words(told.append, error) == exit_code
    assert told == [{"type": "failed", "error": said, "exit_code": exit_code}]
    assert type(error).__name__ in capsys.readouterr().err
