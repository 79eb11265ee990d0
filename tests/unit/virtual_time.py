"""Tests in virtual time: a deadline passes only when nothing else can happen, however slow the machine is."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec

from tests.unit.orchestrator.virtual import clock

P = ParamSpec("P")


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Runs a test on an event loop whose clock jumps to the next timer. No socket and no process can be waited for."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        clock.run(lambda: test(*args, **kwargs))

    return run
