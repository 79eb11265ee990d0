"""A chat that grows by messages, told as a world's observations; and a policy's text, as an assistant's message.

Messages are those of the OpenAI chat interface, as plain dictionaries.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import msgspec

ChatMessage = dict[str, Any]

_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_HOW_TO_CALL = (
    "You may call these tools (name, what it does, parameters as JSON Schema):\n{tools}\n"
    'To call one, write <tool_call>{{"name": "...", "arguments": {{...}}}}</tool_call>.'
)


class Diverged(ValueError):
    """The program did not go on with the conversation it had: an append-only history cannot follow."""


class ChatReply(msgspec.Struct, frozen=True, kw_only=True):
    """What the policy said, for the program that asked."""

    content: str  # text outside of tool calls
    tool_calls: tuple[dict[str, Any], ...] = ()  # {"name", "arguments": JSON text}
    valid: bool = True  # False: it holds a tool call that cannot be read, and is passed on as text


def opening(messages: Sequence[ChatMessage], tools: Sequence[dict[str, Any]]) -> str:
    """The first observation: everything said before the policy's first turn, and how to call the tools."""
    parts = [_told(message) for message in messages]
    if tools:
        parts.append(_HOW_TO_CALL.format(tools="\n".join(_described(tool) for tool in tools)))
    return "\n\n".join(part for part in parts if part)


def added(before: Sequence[ChatMessage], now: Sequence[ChatMessage]) -> str:
    """The next observation: what was said after the policy's answer to `before`.

    Raises `Diverged` unless `now` is `before`, one assistant message, and something new.

    >>> asked = [{"role": "user", "content": "2+2?"}]
    >>> added(asked, [*asked, {"role": "assistant", "content": "5"}, {"role": "user", "content": "No."}])
    'No.'
    """
    start = len(before)
    if len(now) < start + 2 or now[start].get("role") != "assistant":
        raise Diverged(f"{len(now)} messages are no continuation of {start} and an answer")
    for i, (old, new) in enumerate(zip(before, now, strict=False)):
        if old.get("role") != new.get("role") or text_of(old) != text_of(new):
            raise Diverged(f"message {i} has changed")
    return "\n\n".join(_told(message) for message in now[start + 1 :])


def text_of(message: ChatMessage) -> str:
    """The text of a message; images and other parts are left out."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content if isinstance(part, dict))


def reply(action: str, *, tools: bool) -> ChatReply:
    """The policy's text as a message; tool calls are looked for when the program offers tools.

    >>> reply('I look. <tool_call>{"name": "ls", "arguments": {"path": "."}}</tool_call>', tools=True).tool_calls
    ({'name': 'ls', 'arguments': '{"path": "."}'},)
    """
    if not tools or "<tool_call>" not in action:
        return ChatReply(content=action)
    found = _CALL.findall(action)
    try:
        calls = tuple(_call(json.loads(body)) for body in found)
    except (ValueError, TypeError, KeyError, RecursionError):
        calls = ()
    if not calls:
        return ChatReply(content=action, valid=False)
    return ChatReply(content=_CALL.sub("", action).strip(), tool_calls=calls)


def _call(body: Any) -> dict[str, Any]:
    arguments = body["arguments"]
    if not isinstance(body["name"], str) or not isinstance(arguments, dict):
        raise TypeError("name must be text and arguments an object")
    return {"name": body["name"], "arguments": json.dumps(arguments)}


def _told(message: ChatMessage) -> str:
    match message.get("role"):
        case "assistant":
            return f"[assistant]\n{text_of(message)}"
        case "tool":
            return f"[tool result]\n{text_of(message)}"
        case _:
            return text_of(message)


def _described(tool: dict[str, Any]) -> str:
    function = tool.get("function", tool)
    shape = json.dumps(function.get("parameters", {}))
    return f"- {function.get('name')}: {function.get('description', '')} {shape}"
