"""Answers: literals only, normalised, compared as AgentBench compares them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.dbbench.answers import parse_answer, right


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('["a", "b"]', ["a", "b"]),
        ("['a', 'b']", ["a", "b"]),
        ("[('a',), ('b',)]", ["a", "b"]),
        ('[["a"], ["b"]]', ["a", "b"]),
        ("[1, 2.5, None]", ["1", "2.5", "None"]),
        ("[null]", ["None"]),
        ("42", ["42"]),
        ("'quoted'", ["quoted"]),
        ("[Ole Mørk, Jansher Khan]", ["Ole Mørk", "Jansher Khan"]),
        ('[Ole, "a, b"]', ["Ole", "a, b"]),
        ("[]", []),
        (r"['\d']", [r"\d"]),
    ],
)
def test_values_of_an_answer(text: str, values: list[str]) -> None:
    assert parse_answer(text) == values


def test_code_in_an_answer_is_text(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    for code in (f"[open({str(trace)!r}, 'w')]", "[__import__('os').abort()]", "[1 for _ in iter(int, 1)]"):
        assert all(isinstance(value, str) for value in parse_answer(code))
    assert not os.path.exists(trace)


def test_an_answer_of_a_million_brackets_is_text() -> None:
    assert parse_answer("[" * 500_000 + "]" * 500_000)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (["21,000"], ["21000.0"]),
        (["12.5%"], ["12.5"]),
        (["32.509"], ["32.50"]),
        (["None"], ["none"]),
        ([""], ["NULL"]),
        (["0"], ["none"]),
        (["b", "a", "a"], ["a", "b"]),  # a set
        (["2", "1.004"], ["1", "2.0"]),
        ([" Dick Murdoch "], ["Dick Murdoch"]),
        (["World Youth, Championships"], ["World Youth Championships"]),
    ],
)
def test_right_answers(answer: list[str], expected: list[str]) -> None:
    assert right(answer, expected)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (["32.52"], ["32.50"]),
        (["dick murdoch"], ["Dick Murdoch"]),
        (["1", "1", "2"], ["1", "2", "2"]),  # numbers are matched one to one
        (["1"], ["1", "1"]),
        ([], ["none"]),
        (["a"], ["a", "b"]),
        (["1e999"], ["12"]),
        (["True"], ["1"]),
    ],
)
def test_wrong_answers(answer: list[str], expected: list[str]) -> None:
    assert not right(answer, expected)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.one_of(st.integers(-999, 999).map(str), st.text("abc ,%'\"", max_size=4)), min_size=1, max_size=5))
def test_every_answer_is_right_for_itself_in_any_order(values: list[str]) -> None:
    assert right(values, values[::-1])


@settings(deadline=None, max_examples=100)
@given(st.text(max_size=60))
def test_any_text_has_values(text: str) -> None:
    assert all(isinstance(value, str) for value in parse_answer("[" + text + "]"))
