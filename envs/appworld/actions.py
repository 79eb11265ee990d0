"""What the policy wrote, as the code to run. Pure."""

from __future__ import annotations

import ast
import re
import warnings

import msgspec

CODE_CHARACTERS = 100_000  # longer code is not run

_THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_FENCE = re.compile(r"^[ \t]*```[ \t]*([^\n`]*?)[ \t]*\r?\n(.*?)(?:^[ \t]*```[ \t]*\r?$|\Z)", re.MULTILINE | re.DOTALL)
_PYTHON = ("", "python", "py", "python3")
_SAY = (
    "Invalid action: {why}. Write one block of Python code:\n"
    "```python\nprint(apis.api_docs.show_app_descriptions())\n```"
)


class Code(msgspec.Struct, frozen=True, kw_only=True):
    """To be run."""

    text: str  # Python


class Malformed(msgspec.Struct, frozen=True, kw_only=True):
    """No code, or none that is run."""

    answer: str  # what the policy is told


def parse_action(text: str) -> Code | Malformed:
    """The first fenced block of Python in a reply, as upstream's agents take it; a reply without one that is Python
    as a whole. What stands between <think> and </think> does not count, and a last fence may be missing.

    >>> parse_action("I look.\\n```python\\nprint(1)\\n```\\nand then\\n```python\\nprint(2)\\n```").text
    'print(1)'
    """
    text = _THOUGHT.sub("", text).encode(errors="replace").decode()  # half a character is no code either
    blocks = [body.strip() for language, body in _FENCE.findall(text) if language.lower() in _PYTHON]
    code = next((block for block in blocks if block), "")
    if not blocks and not (code := text.strip()):
        return Malformed(answer=_SAY.format(why="your reply holds no code"))
    if not code:
        return Malformed(answer=_SAY.format(why="the block of code is empty"))
    if len(code) > CODE_CHARACTERS:
        why = f"{len(code)} characters are more than the {CODE_CHARACTERS} that may be run"
        return Malformed(answer=_SAY.format(why=why))
    if not blocks and not _is_python(code):
        return Malformed(answer=_SAY.format(why="your reply holds no ```python block and is not Python as a whole"))
    return Code(text=code)


def _is_python(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
