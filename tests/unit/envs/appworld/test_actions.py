"""What is code, and what is told that it is none."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.appworld.actions import CODE_CHARACTERS, Code, Malformed, parse_action


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```python\nprint(1)\n```", "print(1)"),
        ("I look first.\n```python\nprint(1)\nprint(2)\n```\nThat prints.", "print(1)\nprint(2)"),
        ("```\nx = 1\n```", "x = 1"),
        ("```py\nx = 1", "x = 1"),  # cut, or the fence was the stop sequence
        ("```python\na = 1\n```\n```python\nb = 2\n```", "a = 1"),
        ("```json\n{}\n```\nthen\n```python\nb = 2\n```", "b = 2"),
        ("  ```python\nx = '''```'''\n  ```", "x = '''```'''"),
        ("<think>```python\nno()\n```</think>\n```python\nyes()\n```", "yes()"),
        ("print(apis.x.y())", "print(apis.x.y())"),
        ("for i in range(3):\n    print(i)\n", "for i in range(3):\n    print(i)"),
        ("```python\nprint(5\n```", "print(5"),  # a block is code, also when Python disagrees
        ("print('\ud800')", "print('?')"),
    ],
)
def test_code(text: str, code: str) -> None:
    assert parse_action(text) == Code(text=code)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "holds no code"),
        ("<think>I only think", "holds no code"),
        ("I will delete the note now.", "no ```python block"),
        ("print(5", "no ```python block"),
        ("```json\n{}\n```", "no ```python block"),
        ("```python\n\n```", "is empty"),
        ("```python\n" + "x" * (CODE_CHARACTERS + 1) + "\n```", "more than the 100000"),
    ],
)
def test_no_code_is_told_what_to_write(text: str, why: str) -> None:
    malformed = parse_action(text)
    assert isinstance(malformed, Malformed)
    assert malformed.answer.startswith("Invalid action: ")
    assert why in malformed.answer
    assert "```python\n" in malformed.answer


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=st.sampled_from("`pyton \n<think>/x=(é\x00\ud800'"), max_size=60))
def test_any_text_is_code_or_told(text: str) -> None:
    parsed = parse_action(text)
    if isinstance(parsed, Code):
        assert parsed.text
        parsed.text.encode()
    else:
        assert parsed.answer.startswith("Invalid action: ")
