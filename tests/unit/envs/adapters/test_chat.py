"""Chats as observations, and text as messages."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.adapters.chat import ChatMessage, Diverged, added, opening, reply

SYSTEM: ChatMessage = {"role": "system", "content": "Be short."}
QUESTION: ChatMessage = {"role": "user", "content": "What is 2+2?"}
LOOK_UP = {
    "type": "function",
    "function": {"name": "look_up", "description": "Finds words.", "parameters": {"type": "object"}},
}


def said(text: str) -> ChatMessage:
    return {"role": "assistant", "content": text}


def test_an_opening_holds_what_was_said_and_the_tools() -> None:
    assert opening([SYSTEM, QUESTION], []) == "Be short.\n\nWhat is 2+2?"
    text = opening([QUESTION], [LOOK_UP])
    assert text.startswith("What is 2+2?\n\n")
    assert '- look_up: Finds words. {"type": "object"}' in text
    assert "<tool_call>" in text


def test_earlier_answers_in_an_opening_are_marked() -> None:
    assert opening([QUESTION, said("4"), {"role": "user", "content": "And 3+3?"}], []) == (
        "What is 2+2?\n\n[assistant]\n4\n\nAnd 3+3?"
    )


def test_parts_are_read_for_their_text() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:"}}
    assert opening([{"role": "user", "content": [{"type": "text", "text": "Look:"}, picture]}], []) == "Look:\n"


def test_what_was_added_after_the_answer() -> None:
    before = [SYSTEM, QUESTION]
    tool: ChatMessage = {"role": "tool", "tool_call_id": "1", "content": "four"}
    assert added(before, [*before, said(""), tool, {"role": "user", "content": "So?"}]) == "[tool result]\nfour\n\nSo?"


@pytest.mark.parametrize(
    "now",
    [
        [],
        [SYSTEM, QUESTION],
        [SYSTEM, QUESTION, said("4")],
        [SYSTEM, QUESTION, QUESTION, QUESTION],
        [SYSTEM, {"role": "user", "content": "What is 3+3?"}, said("4"), QUESTION],
        [QUESTION, SYSTEM, said("4"), QUESTION],
    ],
)
def test_another_conversation_is_noticed(now: list[ChatMessage]) -> None:
    with pytest.raises(Diverged):
        added([SYSTEM, QUESTION], now)


def test_calls_of_tools_are_taken_out_of_the_text() -> None:
    call = '<tool_call>\n{"name": "look_up", "arguments": {"word": "four"}}\n</tool_call>'
    answer = reply(f"Let me see. {call} {call}", tools=True)
    assert answer.valid
    assert answer.content == "Let me see."
    assert [json.loads(c["arguments"]) for c in answer.tool_calls] == [{"word": "four"}] * 2
    assert reply(f"I quote {call}", tools=False).content == f"I quote {call}"


@pytest.mark.parametrize(
    "body",
    [
        "",
        "look_up four",
        "[1]",
        '{"name": "look_up"}',
        '{"name": 3, "arguments": {}}',
        '{"name": "x", "arguments": "{}"}',
        "[" * 100_000,
    ],
)
def test_a_call_that_cannot_be_read_is_text_and_invalid(body: str) -> None:
    text = f"<tool_call>{body}</tool_call>"
    answer = reply(text, tools=True)
    assert (answer.valid, answer.content, answer.tool_calls) == (False, text, ())
    assert not reply("<tool_call>never closed", tools=True).valid


@settings(deadline=None, max_examples=60)
@given(text=st.text(max_size=60))
def test_any_text_is_an_answer(text: str) -> None:
    assert reply(text, tools=False).content == text
    reply(f"<tool_call>{text}</tool_call>", tools=True)
