from __future__ import annotations

import io
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from stream_rl.page.reader import ToldEvent
from stream_rl.page.screen import cells, screen

STATUS: dict[str, Any] = {
    "run": "r1",
    "phase": "training",
    "paused": False,
    "version": 7,
    "updates": 40,
    "train_s": 12.0,
    "wall_s": 20.0,
    "async_depth": 2,
    "permits": {"taken": 5, "capacity": 12},
    "groups": {"leased": 3, "candidate": 2},
    "success": {"train": 0.5, "by_env": {"household": 0.5}},
    "eval": {"success": {"overall": 0.25}, "stderr": 0.05},
    "judge": {
        "waiting": 4,
        "problem": None,
        "endpoints": [{"url": "http://j/v1", "model": "[bold]m", "state": "up", "in_flight": 1, "limit": 8}],
    },
    "producers": [{"name": "producer-0", "engine": "vllm", "version": 7, "rollouts": 6, "capacity": 8}],
    "learner": {"version": 7, "waiting": True},
}


def rendered(status: dict[str, Any], *, footer: str = "q leave", events: list[ToldEvent] | None = None) -> str:
    out = io.StringIO()
    roles = {"learner": {"train": 1.0, "rollout_wait": 3.0}}
    board = screen(status, roles=roles, lag={"0": 2.0, "1": 6.0}, events=events or [], footer=footer)
    Console(file=out, width=140, color_system=None).print(board)
    return out.getvalue()


def test_the_board_says_who_does_what() -> None:
    text = rendered(STATUS)
    for words in (
        "training, version 7 of 40",
        "async depth 2",
        "held-out 0.250 +- 0.050",
        "household 0.500",
        "5 of 12 permits",
        "6 of 8 rollouts",
        "v7, waits for groups",
        "rollout wait 75%",
        "train 25%",
        "http://j/v1",
        "[bold]m",
        "4 transcripts wait",
        "q leave",
    ):
        assert words in text, words


def test_a_paused_run_says_so() -> None:
    assert "paused, version 7" in rendered({**STATUS, "paused": True, "doing": "paused"})


def test_a_run_that_left_little_behind_is_shown_too() -> None:
    assert "not running" in rendered({"run": "r1", "phase": "not running", "version": 0})


def test_terminal_escapes_of_others_are_not_passed_on() -> None:
    events = [ToldEvent(at=0.0, type="judge", text="evil\x1b[2Jtext")]
    assert "\x1b" not in rendered(STATUS, events=events)


@settings(deadline=None, max_examples=40)
@given(
    parts=st.dictionaries(st.sampled_from("abcdefgh"), st.floats(0, 1e4), max_size=8),
    width=st.integers(0, 80),
)
def test_a_bar_is_full_whatever_the_shares(parts: dict[str, float], width: int) -> None:
    found = cells(parts, width)
    total = sum(parts.values())
    assert sum(found.values()) == (width if total > 0 else 0)
    for name, size in found.items():
        assert abs(size - width * parts[name] / total) < 1
