"""What the policy wrote, as what it wants: to run a statement, or to give its answer. Pure.

Two forms, as in AgentBench: text ("Action: Operation" with an SQL block, "Action: Answer" with "Final Answer: [..]")
and tool calls (`execute_sql`, `commit_final_answer`) written as JSON.
"""

from __future__ import annotations

import json
import re
from typing import Any, Literal

import msgspec

from envs.dbbench.answers import parse_answer, values

Form = Literal["text", "tool"]

_THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_ACTION = re.compile(r"Action:\s*(Operation|Answer)\b", re.IGNORECASE)
_BLOCK = re.compile(r"```sql\b(.*?)(?:```|\Z)", re.IGNORECASE | re.DOTALL)
_FINAL = re.compile(r"Final Answer:[ \t]*(.*)", re.IGNORECASE)

_SAY_TEXT = (
    "Error: your reply holds no action. Write 'Action: Operation' and one SQL statement in a ```sql block, or "
    "'Action: Answer' and 'Final Answer: [\"ANSWER1\", ...]'."
)
_SAY_BLOCK = "Error: 'Action: Operation' must be followed by one SQL statement in a ```sql block."
_SAY_FINAL = "Error: 'Action: Answer' must be followed by a line 'Final Answer: [\"ANSWER1\", ...]'."
_SAY_TOOL = (
    'Error: your reply holds no tool call. Write {"name": "execute_sql", "arguments": {"query": "SQL"}} or '
    '{"name": "commit_final_answer", "arguments": {"answers": ["ANSWER1", ...]}}.'
)


class Execute(msgspec.Struct, frozen=True, kw_only=True):
    """Run a statement."""

    statement: str  # as it was written


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """The final answer."""

    values: tuple[str, ...]  # one or more for a question, anything after a change


class Malformed(msgspec.Struct, frozen=True, kw_only=True):
    """Neither of the two."""

    answer: str  # what the policy is told


Action = Execute | Commit | Malformed


def parse_action(text: str, form: Form) -> Action:
    """The first action of a reply; what it wrote between <think> and </think> does not count."""
    text = _THOUGHT.sub("", text)
    return _text(text) if form == "text" else _tool(text)


def _text(text: str) -> Action:
    action = _ACTION.search(text)
    if action is None:
        return Malformed(answer=_SAY_TEXT)
    rest = text[action.end() :]
    if action.group(1).lower() == "operation":
        block = _BLOCK.search(rest)
        if block is None or not block.group(1).strip():
            return Malformed(answer=_SAY_BLOCK)
        return Execute(statement=block.group(1).strip())
    final = _FINAL.search(rest)
    if final is None:
        return Malformed(answer=_SAY_FINAL)
    return Commit(values=tuple(parse_answer(final.group(1))))


def _tool(text: str) -> Action:
    for call in _objects(text):
        name, arguments = call.get("name"), call.get("arguments")
        if isinstance(arguments, str):  # some templates encode them once more
            arguments = next(_objects(arguments), None)
        if not isinstance(arguments, dict) or not arguments:
            continue
        first = next(iter(arguments.values()))
        if name == "execute_sql" and isinstance(first, str) and first.strip():
            return Execute(statement=first.strip())
        if name == "commit_final_answer":
            return Commit(values=tuple(values(first)))
    return Malformed(answer=_SAY_TOOL)


def _objects(text: str) -> Any:
    """JSON objects in a text, outermost ones, in order."""
    decoder = json.JSONDecoder()
    at = text.find("{")
    while at >= 0:
        try:
            found, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            yield found
        at = text.find("{", end)
