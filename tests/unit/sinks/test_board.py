from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stream_rl.observe.rundir import RunDirectory, read_json_lines
from stream_rl.observe.words import sentence
from stream_rl.sinks import feed
from stream_rl.sinks.board import LOG, SinkBoard
from stream_rl.sinks.port import RunFacts, Sink
from tests.unit.observe.samples import ALARM, eval_record, metrics_line
from tests.unit.sinks.doubles import Broken, Followed, Kept, Stuck, refuses

UPDATES = [{"type": "update", **metrics_line(step, train_s=4.0 * (step + 1))} for step in range(4)]
Start = Callable[[RunFacts], Sink]


def sinks(root: Path, shown: list[Mapping[str, Any]], starts: Mapping[str, Start], flush_s: float = 20.0) -> SinkBoard:
    run = RunDirectory.create(root)
    facts = RunFacts(name=root.name, run_id=run.run_id, folder=root, config={})
    return SinkBoard(shown.append, run, starts, facts, flush_s=flush_s)


def test_every_sink_gets_every_point_in_order_and_is_closed(tmp_path: Path) -> None:
    shown: list[Mapping[str, Any]] = []
    one: list[str] = []
    two: list[str] = []
    evaluated = {"type": "eval", **eval_record(2, train_s=8.0, success=0.5)}
    with sinks(tmp_path / "r", shown, {"one": lambda _: Kept(one), "two": lambda _: Kept(two)}) as board:
        for event in (*UPDATES[:2], evaluated, ALARM, UPDATES[2]):
            board(event)
    assert not board.stuck
    assert one == two == ["update 0", "update 1", "eval 2", "update 2", "closed"]
    assert shown == [*UPDATES[:2], evaluated, ALARM, UPDATES[2]]


def test_a_failing_sink_is_told_once_and_dropped_and_the_others_go_on(tmp_path: Path) -> None:
    shown: list[Mapping[str, Any]] = []
    good: list[str] = []
    bad: list[str] = []
    starts: dict[str, Start] = {"good": lambda _: Kept(good), "bad": lambda _: Broken(bad, step=1), "shut": refuses}
    with sinks(tmp_path / "r", shown, starts) as board:
        for event in UPDATES:
            board(event)
    assert good == ["update 0", "update 1", "update 2", "update 3", "closed"]
    assert bad == ["update 0", "closed"]
    told = {event["name"]: event for event in shown if event["type"] == "sink"}
    assert [e for e in shown if e["type"] == "update"] == UPDATES
    assert sorted(told) == ["bad", "shut"]
    assert len(shown) == len(UPDATES) + 2, "each is told once"
    assert told["bad"]["problem"] == "ConnectionError: no route to host"
    assert told["shut"]["problem"] == "PermissionError: r is not yours"
    assert list(read_json_lines(tmp_path / "r" / "events.jsonl")) == [e for e in shown if e["type"] == "sink"]
    assert "no route to host" in sentence(told["bad"])
    assert "the run goes on" in sentence(told["bad"])
    assert "doubles.py" in (tmp_path / "r" / "logs" / LOG).read_text(encoding="utf-8"), "the log says where"


def test_sinks_that_fail_together_stand_in_the_file_in_the_order_they_were_told(tmp_path: Path) -> None:
    at_once = threading.Barrier(16)
    shown: list[Mapping[str, Any]] = []
    written: list[int] = []

    def board(event: Mapping[str, Any]) -> None:
        shown.append(event)
        written.append(len(list(read_json_lines(tmp_path / "r" / "events.jsonl"))))

    def fails(facts: RunFacts) -> Sink:
        at_once.wait(timeout=30)
        return refuses(facts)

    run = RunDirectory.create(tmp_path / "r")
    facts = RunFacts(name="r", run_id=run.run_id, folder=tmp_path / "r", config={})
    with SinkBoard(board, run, {f"sink {n}": fails for n in range(16)}, facts, flush_s=30.0):
        pass
    assert list(read_json_lines(tmp_path / "r" / "events.jsonl")) == shown
    assert written == list(range(1, 17)), "none is written before the one before it was shown"


def test_a_sink_that_hangs_holds_nobody_up(tmp_path: Path) -> None:
    """Neither the board, while the run trains, nor the end of the run, nor another sink."""
    shown: list[Mapping[str, Any]] = []
    good: list[str] = []
    free = threading.Event()
    caught_up = threading.Event()
    starts: dict[str, Start] = {"stuck": lambda _: Stuck([], free), "good": lambda _: Followed(good, 3, caught_up)}
    try:
        with sinks(tmp_path / "r", shown, starts, flush_s=1.0) as board:
            for event in UPDATES:
                board(event)
            assert shown == UPDATES
            assert caught_up.wait(40), "a sink waited for another one"
        assert board.stuck
    finally:
        free.set()
    (told,) = (event for event in shown if event["type"] == "sink")
    assert told["name"] == "stuck"
    assert "not done in time" in told["problem"]


def test_what_waits_for_a_sink_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "CAPACITY", 2)
    shown: list[Mapping[str, Any]] = []
    free = threading.Event()
    try:
        with sinks(tmp_path / "r", shown, {"stuck": partial(_stuck, free)}, flush_s=0.1) as board:
            for _ in range(3):
                for event in UPDATES:
                    board(event)
    finally:
        free.set()
    (told,) = (event for event in shown if event["type"] == "sink")
    assert told["problem"].startswith("it is 2 points behind")


def _stuck(free: threading.Event, _: RunFacts) -> Sink:
    return Stuck([], free)


def test_what_a_sink_prints_is_not_on_the_board(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Talker(Kept):
        def close(self) -> None:
            sys.stdout.write("* uploading\n")
            sys.stderr.write("a warning\n")

    with sinks(tmp_path / "r", [], {"talker": lambda _: Talker([])}) as board:
        board(UPDATES[0])
    assert capsys.readouterr() == ("", "")
    assert (tmp_path / "r" / "logs" / LOG).read_text(encoding="utf-8") == "* uploading\na warning\n"


def test_without_sinks_nothing_is_made(tmp_path: Path) -> None:
    shown: list[Mapping[str, Any]] = []
    before = sys.stdout, threading.active_count()
    with sinks(tmp_path / "r", shown, {}) as board:
        board(UPDATES[0])
        assert (sys.stdout, threading.active_count()) == before
    assert shown == UPDATES[:1]
    assert not (tmp_path / "r" / "logs" / LOG).exists()
