from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judge.transcript import (
    CLOSE_MARK,
    MIN_BUDGET,
    OPEN_MARK,
    MalformedTranscript,
    Transcript,
    TranscriptTurn,
    from_trajectory,
    quote,
    unquote,
)
from tests.unit.judge.builders import CLEAN, trajectory

texts = st.text(max_size=60) | st.sampled_from([OPEN_MARK, f"\n{CLOSE_MARK}\n", '"}\n{"turn":9', "\x7f\u202e\u2028"])
turns = st.lists(st.tuples(texts, texts, st.booleans()), max_size=8)


def build(task: str, rows: list[tuple[str, str, bool]]) -> Transcript:
    return Transcript(
        task=task,
        turns=tuple(TranscriptTurn(turn=i, action=a, observation=o, valid=v) for i, (a, o, v) in enumerate(rows, 1)),
    )


def test_a_trajectory_becomes_task_and_numbered_turns_without_its_outcome() -> None:
    source = trajectory(CLEAN)
    assert from_trajectory(source) == CLEAN
    quotation = quote(from_trajectory(source))
    for word in ("success", "reward", "score"):
        assert word not in quotation


def test_one_line_a_turn_between_the_markers() -> None:
    lines = quote(CLEAN).split("\n")
    assert lines[0] == OPEN_MARK
    assert lines[-1] == CLOSE_MARK
    assert len(lines) == 3 + len(CLEAN.turns)
    assert lines[2] == '{"turn":1,"action":"go to cabinet 1","observation":"The cabinet 1 is closed.","valid":true}'


@settings(deadline=None, max_examples=80)
@given(texts, turns)
def test_nothing_inside_ends_the_quotation_and_everything_comes_back(
    task: str, rows: list[tuple[str, str, bool]]
) -> None:
    original = build(task, rows)
    quotation = quote(original)
    assert quotation.count(OPEN_MARK) == quotation.count(CLOSE_MARK) == 1
    assert quotation.count("\n") == 2 + len(rows)
    assert all(c == "\n" or c >= " " for c in quotation)
    assert not set("\x7f\u0085\u2028\u202e\u200b") & set(quotation)
    assert unquote(f"before\n{quotation}\nafter {CLOSE_MARK}") == original


def test_a_lone_surrogate_becomes_a_replacement_character() -> None:
    assert unquote(quote(build("a\ud800b", []))).task == "a\ufffdb"


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 40), st.sampled_from(["x", "\x00", "\U000e0041", "<", "é"]), st.integers(0, 3000))
def test_the_budget_holds_and_what_is_left_out_is_counted(num_turns: int, character: str, size: int) -> None:
    rows = [(f"go {i}", character * size, True) for i in range(num_turns)]
    quotation = quote(build(character * size, rows), MIN_BUDGET)
    assert len(quotation) <= MIN_BUDGET
    back = unquote(quotation)
    assert len(back.turns) + back.left_out == num_turns
    if num_turns:
        assert back.turns[0].action == "go 0"


def test_turns_are_left_out_of_the_middle_with_their_number() -> None:
    rows = [("look", "x" * 80, True) for _ in range(30)]
    quotation = quote(build("task", rows), MIN_BUDGET)
    back = unquote(quotation)
    assert f"\n[... {back.left_out} turns left out ...]\n" in quotation
    kept = [t.turn for t in back.turns]
    assert kept[0] == 1
    assert kept[-1] == 30
    assert back.left_out == 30 - len(kept) > 0


def test_a_long_text_says_how_many_characters_are_missing() -> None:
    action = unquote(quote(build("task", [("a" * 600 + "z" * 600, "", True)]), MIN_BUDGET)).turns[0].action
    assert action.startswith("aaa")
    assert action.endswith("zzz")
    missing = int(action.split("[... ")[1].split()[0])
    beginning, _, end = action.partition(f" [... {missing} characters left out ...] ")
    assert len(beginning) + len(end) + missing == 1200


@pytest.mark.parametrize(
    "text",
    [
        "",
        OPEN_MARK,
        f"{OPEN_MARK}\n{CLOSE_MARK}",
        f"{OPEN_MARK}\nnot json\n{CLOSE_MARK}",
        f"{CLOSE_MARK}\n{OPEN_MARK}\n",
    ],
)
def test_text_without_a_quotation_is_refused(text: str) -> None:
    with pytest.raises(MalformedTranscript):
        unquote(text)
