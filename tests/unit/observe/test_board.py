from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rl.observe.board import TerminalBoard
from tests.unit.observe.samples import ALARM, eval_record, metrics_line

KINDS = (
    *("start", "policy", "phase", "update", "eval", "alarm", "discarded", "producer_ready", "producer_left"),
    *("producer_quarantined", "learner_ready", "weights_failed", "checkpoint", "judge", "role_restarted"),
    *("stopping", "finished", "failing", "failed", "killed", "restart", "something_new"),
)


def shown(*events: dict[str, Any], is_terminal: bool = False) -> list[str]:
    stream = io.StringIO()
    board = TerminalBoard(stream, is_terminal=is_terminal)
    for event in events:
        board(event)
    return stream.getvalue().splitlines()


def test_an_update_is_one_line_under_its_header() -> None:
    evaluated = {"type": "eval"} | eval_record(0, train_s=0.0, success=0.4, stderr=0.025)
    lines = shown(
        evaluated,
        {"type": "update"} | metrics_line(0, train_s=4.0),
        {"type": "update"} | metrics_line(1, train_s=8.0, alarms=["entropy"]),
    )
    assert len(lines) == 4
    header, first, second = lines[1:]
    assert header.split()[0] == "update"
    # Update 0, 4 s, train success, held-out with error, reward, lag, wait and share, 8000 tokens in 4 s, s/update
    assert " ".join(first.split()) == "0 4.0 0.250 0.400 +-0.025 0.250 1 1.00 s ( 25%) 2000 4.00"
    assert second.endswith("alarm: entropy")
    for end in ("success", "held-out", "reward", "lag", "gen tok/s", "s/update"):
        assert first[header.index(end) + len(end) :][:1] in ("", " "), f"{end} is not aligned"
        assert first[header.index(end) + len(end) - 1] != " ", f"{end} is not aligned"


def test_the_header_comes_back_every_twenty_lines() -> None:
    lines = shown(*({"type": "update"} | metrics_line(i, train_s=4.0 * (i + 1)) for i in range(41)))
    assert [i for i, line in enumerate(lines) if line.startswith("update")] == [0, 21, 42]


def test_lost_groups_are_told_once_and_counted_in_the_line() -> None:
    gone = {"type": "discarded", "group": "g000001", "reason": "stale", "errors": []}
    groups = {"candidate": 16, "selected": 16, "discarded": {"stale": 2, "not_selected": 16}}
    lines = shown(gone, gone, {"type": "update"} | metrics_line(0, train_s=4.0, groups=groups))
    assert len([line for line in lines if "g000001" in line]) == 1
    assert lines[-1].endswith("lost: stale 2")


def test_an_alarm_says_what_happened_and_what_to_do() -> None:
    text = " ".join(line.strip() for line in shown(ALARM))
    assert "ALARM at update 9" in text
    assert "entropy is 0.02, below 0.05" in text
    assert "lower learner.lr" in text


def test_policy_progress_into_a_file_is_a_line_for_every_tenth() -> None:
    events = [{"type": "policy", "step": i, "total": 900, "loss": 1.5} for i in range(901)]
    lines = shown(*events)
    assert len(lines) == 11
    assert lines[0].startswith("making the start policy:   0 %")
    assert lines[-1].startswith("making the start policy: 100 %")


def test_policy_progress_on_a_terminal_redraws_one_line_and_ends_it_before_the_next() -> None:
    stream = io.StringIO()
    board = TerminalBoard(stream, is_terminal=True)
    board({"type": "policy", "step": 450, "total": 900, "loss": 1.5})
    assert stream.getvalue().count("#") == 15
    assert "\n" not in stream.getvalue()
    board({"type": "phase", "phase": "training"})
    assert stream.getvalue().endswith("\nphase: training\n")


def test_a_file_gets_no_escape_codes_even_from_text_that_holds_them() -> None:
    stream = io.StringIO()
    board = TerminalBoard(stream, is_terminal=False)
    board({"type": "failed", "error": "\x1b[31mboo\x07\nsecond line"})
    board(ALARM)
    assert not set(stream.getvalue()) & {"\x1b", "\x07", "\r"}
    assert "second line" in stream.getvalue().splitlines()[1]


def test_colour_only_on_a_terminal() -> None:
    assert "\x1b[31m" in "".join(shown(ALARM, is_terminal=True))


def test_a_stream_that_cannot_show_a_character_gets_another() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    TerminalBoard(stream, is_terminal=False)({"type": "failed", "error": "caf\u00e9"})
    assert raw.getvalue() == b"FAILED: caf?\n"


@pytest.mark.parametrize("is_terminal", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_missing_fields_never_raise(kind: str, is_terminal: bool) -> None:
    assert kind == "restart" or shown({"type": kind}, is_terminal=is_terminal)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)
FIELDS = sorted({*metrics_line(0, train_s=1.0), *eval_record(0, train_s=0, success=0), *ALARM, "errors", "total"})


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(KINDS), st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=8), st.booleans())
def test_odd_fields_never_raise_and_lines_fit(kind: str, fields: dict[str, Any], is_terminal: bool) -> None:
    for line in shown(fields | {"type": kind}, is_terminal=is_terminal):
        assert is_terminal or len(line) <= 120
