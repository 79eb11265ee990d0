"""Both forms of actions, as AgentBench writes them, and what is in neither."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.dbbench.actions import Commit, Execute, Form, Malformed, parse_action


def operation(sql: str) -> str:
    return f"I look first.\nAction: Operation\n```sql\n{sql}\n```"


def call(name: str, **arguments: object) -> str:
    return json.dumps({"name": name, "arguments": arguments})


def test_an_operation_is_the_first_block() -> None:
    text = operation("SELECT 1;") + "\n" + operation("SELECT 2;")
    assert parse_action(text, "text") == Execute(statement="SELECT 1;")


def test_an_answer_is_the_list_after_final_answer() -> None:
    text = 'Done.\nAction: Answer\nFinal Answer: ["Ole Mørk", "3,729.7"]\n'
    assert parse_action(text, "text") == Commit(values=("Ole Mørk", "3,729.7"))


def test_the_first_of_two_actions_counts() -> None:
    text = operation("SELECT 1") + '\nAction: Answer\nFinal Answer: ["made up"]'
    assert parse_action(text, "text") == Execute(statement="SELECT 1")


def test_what_is_thought_is_not_done() -> None:
    thought = "<think>Action: Answer\nFinal Answer: [1]</think>\n"
    assert parse_action(thought + operation("SELECT 2"), "text") == Execute(statement="SELECT 2")
    assert isinstance(parse_action("<think>" + operation("SELECT 2"), "text"), Malformed)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("SELECT 1", "Action: Operation"),
        ("Action: Operation\nSELECT 1", "```sql"),
        ("Action: Operation\n```sql\n\n```", "```sql"),
        ("Action: Answer\n42", "Final Answer"),
        ("Action: Dance\n", "Action: Operation"),
        ("", "Action: Operation"),
    ],
)
def test_a_reply_in_no_text_form_is_told_the_form(text: str, hint: str) -> None:
    action = parse_action(text, "text")
    assert isinstance(action, Malformed)
    assert hint in action.answer


@pytest.mark.parametrize("wrap", ["{}", "<tool_call>\n{}\n</tool_call>", "I see.\n```json\n{}\n```"])
def test_tool_calls_are_found_in_what_surrounds_them(wrap: str) -> None:
    assert parse_action(wrap.format(call("execute_sql", query="SELECT '{'")), "tool") == Execute(statement="SELECT '{'")
    assert parse_action(wrap.format(call("commit_final_answer", answers=["a", 5])), "tool") == Commit(values=("a", "5"))


def test_arguments_may_be_encoded_twice() -> None:
    text = json.dumps({"name": "execute_sql", "arguments": json.dumps({"query": "SELECT 1"})})
    assert parse_action(text, "tool") == Execute(statement="SELECT 1")


def test_an_answer_by_tool_may_be_one_text() -> None:
    assert parse_action(call("commit_final_answer", answer='["x", "y"]'), "tool") == Commit(values=("x", "y"))


@pytest.mark.parametrize(
    "text", ["", "{", call("rm", path="/"), call("execute_sql"), call("execute_sql", query=3), '{"name": []}']
)
def test_a_reply_in_no_tool_form_is_told_the_form(text: str) -> None:
    action = parse_action(text, "tool")
    assert isinstance(action, Malformed)
    assert "execute_sql" in action.answer


@settings(deadline=None, max_examples=100)
@given(
    st.text(alphabet="{}[]\"':,`Action Operation Final Answer sql\n", max_size=80), st.sampled_from(["text", "tool"])
)
def test_any_text_is_some_action(text: str, form: Form) -> None:
    assert isinstance(parse_action("Action: Answer\nFinal Answer:" + text, form), Execute | Commit | Malformed)
    assert isinstance(parse_action(text, form), Execute | Commit | Malformed)
