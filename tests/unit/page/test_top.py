from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from rich.console import Console

from stream_rl.app.commands.top import Top
from stream_rl.messages import (
    DetachJudge,
    FromControl,
    JudgesReply,
    StatusReply,
    StatusRequest,
    ToControl,
    Tune,
    TuneReply,
)
from stream_rl.page.reader import RunReader
from stream_rl.page.snapshot import Snapshot
from stream_rl.rubrics.vocabulary import builtin
from tests.unit.ledgers import write_run


class Orchestrator:
    """Answers as the control link does; keeps what it was asked to change."""

    def __init__(self) -> None:
        self.changes: list[FromControl] = []
        self.status: dict[str, Any] = {
            "run": "r",
            "phase": "training",
            "async_depth": 1,
            "paused": False,
            "judge": {"endpoints": [{"url": "http://a/v1"}, {"url": "http://b/v1"}]},
        }

    async def __call__(self, message: FromControl) -> ToControl | None:
        if isinstance(message, StatusRequest):
            return StatusReply(status=self.status)
        self.changes.append(message)
        if isinstance(message, Tune):
            return TuneReply(
                async_depth=1, paused=bool(message.paused), error="no deeper" if message.async_depth else None
            )
        return JudgesReply(endpoints=[])


async def drawn(top: Top) -> str:
    out = io.StringIO()
    Console(file=out, width=160, color_system=None).print(await top.draw())
    return out.getvalue()


def top(tmp_path: Path, asked: Orchestrator) -> Top:
    return Top(RunReader(write_run(tmp_path / "run", []), builtin()), Snapshot(asked))


async def test_keys_change_the_run(tmp_path: Path) -> None:
    asked = Orchestrator()
    board = top(tmp_path, asked)
    await board.draw()
    assert await board.press("p")
    assert "paused" in await drawn(board)
    assert await board.press("+")
    assert "no deeper" in await drawn(board)
    assert await board.press("-")
    assert asked.changes == [Tune(paused=True), Tune(async_depth=2), Tune(async_depth=0)]


async def test_detaching_asks_which(tmp_path: Path) -> None:
    asked = Orchestrator()
    board = top(tmp_path, asked)
    await board.draw()
    assert await board.press("d")
    assert "detach which judge?" in await drawn(board)
    assert asked.changes == []
    assert await board.press("2")
    assert asked.changes == [DetachJudge(url="http://b/v1")]


async def test_a_key_that_is_no_judge_leaves_them_all(tmp_path: Path) -> None:
    asked = Orchestrator()
    board = top(tmp_path, asked)
    await board.draw()
    for key in ("9", "0", "q", "²"):
        assert await board.press("d")
        assert await board.press(key)
    assert asked.changes == []


async def test_q_leaves(tmp_path: Path) -> None:
    board = top(tmp_path, Orchestrator())
    assert not await board.press("q")
