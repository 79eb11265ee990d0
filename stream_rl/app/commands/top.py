"""`top`: the live board of a run in the terminal, with keys that change the run."""

from __future__ import annotations

import argparse
import os
import sys
import termios
import tty
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import anyio
import anyio.abc
from rich.console import Console, RenderableType
from rich.live import Live

from stream_rl.app.control import asking
from stream_rl.messages import DetachJudge, FromControl, JudgesReply, Tune, TuneReply
from stream_rl.observe.rundir import RunDirectory
from stream_rl.page.reader import RunReader
from stream_rl.page.screen import screen
from stream_rl.page.snapshot import Snapshot
from stream_rl.rubrics.vocabulary import builtin

_REDRAW_S = 1.0  # a clock that moves on, without any key
_KEYS = "q leave   p pause or go on   + - async depth   d detach a judge"


def run(arguments: argparse.Namespace) -> int:
    """Watch until q or Ctrl-C. Where there is no terminal the board is printed once."""
    run_dir = RunDirectory.existing(arguments.run)

    async def show() -> None:
        async with asking(run_dir) as ask:
            top = Top(RunReader(run_dir, builtin()), Snapshot(ask))
            if sys.stdin.isatty() and sys.stdout.isatty():
                await _watch(top)
            else:
                Console().print(await top.draw())

    anyio.run(show)
    return 0


class Top:
    """The board and what its keys do. A key that asks for a number waits for the next one."""

    def __init__(self, reader: RunReader, snapshot: Snapshot) -> None:
        """Nothing is asked yet."""
        self._reader = reader
        self._snapshot = snapshot
        self._status: Mapping[str, Any] = {}
        self._choosing = False
        self._note = ""

    async def draw(self) -> RenderableType:
        """The board as it stands now."""
        status = await self._snapshot.get()
        self._status = status if status is not None else await anyio.to_thread.run_sync(self._reader.left_behind)
        updates = await anyio.to_thread.run_sync(partial(self._reader.updates, since=-1, points=1))
        events = await anyio.to_thread.run_sync(self._reader.events)
        footer = "detach which judge? press its number; any other key leaves it be" if self._choosing else _KEYS
        return screen(
            self._status,
            roles=updates.recent_roles,
            lag=updates.totals["lag"],
            events=events,
            footer=f"{footer}   {self._note}",
        )

    async def press(self, key: str) -> bool:
        """Do what a key says. False: leave."""
        self._note = ""
        if self._choosing:
            self._choosing = False
            await self._detach(key)
            return True
        match key:
            case "q" | "\x03" | "\x04":
                return False
            case "p":
                await self._change(Tune(paused=not self._status.get("paused")))
            case "+" | "-":
                depth = int(self._status.get("async_depth") or 0) + (1 if key == "+" else -1)
                await self._change(Tune(async_depth=depth))
            case "d":
                self._choosing = bool(self._endpoints())
                self._note = "" if self._choosing else "no judge is attached"
        return True

    def _endpoints(self) -> list[Mapping[str, Any]]:
        return list(self._status.get("judge", {}).get("endpoints", ()))

    async def _detach(self, key: str) -> None:
        endpoints = self._endpoints()
        if key.isdecimal() and 1 <= int(key) <= len(endpoints):
            await self._change(DetachJudge(url=str(endpoints[int(key) - 1]["url"])))

    async def _change(self, message: FromControl) -> None:
        reply = await self._snapshot.act(message)
        match reply:
            case TuneReply(error=None):
                self._note = f"async depth {reply.async_depth}, {'paused' if reply.paused else 'going on'}"
            case JudgesReply(error=None):
                self._note = f"{len(reply.endpoints)} judges are attached"
            case TuneReply() | JudgesReply():
                self._note = str(reply.error)
            case _:
                self._note = "nobody answers: the run is not running"


async def _watch(top: Top) -> None:
    console = Console()
    send, keys = anyio.create_memory_object_stream[str](16)
    with _single_keys(), Live(console=console, screen=True, auto_refresh=False) as live:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_read_keys, send)
            async with keys:
                while True:
                    live.update(await top.draw(), refresh=True)
                    key = None
                    with anyio.move_on_after(_REDRAW_S):
                        key = await keys.receive()
                    if key is not None and not await top.press(key):
                        tasks.cancel_scope.cancel()
                        return


async def _read_keys(send: anyio.abc.ObjectSendStream[str]) -> None:
    async with send:
        while True:
            await anyio.wait_readable(sys.stdin)
            pressed = os.read(sys.stdin.fileno(), 64).decode(errors="replace")
            if not pressed:
                await send.send("q")  # the terminal is gone
                return
            for key in pressed:
                await send.send(key)


@contextmanager
def _single_keys() -> Iterator[None]:
    """Keys arrive as they are pressed and are not shown."""
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
