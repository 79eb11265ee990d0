"""How rubric text enters a prompt: one function for training guidance and for the teacher's hint."""

from __future__ import annotations

from collections.abc import Sequence

from stream_rl.rubrics.vocabulary import Vocabulary
from stream_rl.types import Message


def hint_text(vocabulary: Vocabulary, rubric_ids: Sequence[str]) -> str:
    """Positive rubrics as one line for the teacher; empty for none.

    "guide : search each place once . open closed places at once ."
    """
    return _line([vocabulary[r].hint for r in rubric_ids])


def avoid_text(vocabulary: Vocabulary, rubric_ids: Sequence[str]) -> str:
    """Dominant violations as one line for later training rollouts; empty for none."""
    return _line([vocabulary[r].avoid for r in rubric_ids])


def criteria_text(criteria: Sequence[str]) -> str:
    """Written criteria as one line for the teacher, in the form of a hint; empty for none.

    A criterion's own final stop is left out: the line sets one after each.
    """
    phrases = [criterion.rstrip(" .").strip() for criterion in criteria]
    return _line([phrase for phrase in phrases if phrase])


def with_guidance(head: Sequence[Message], text: str) -> tuple[Message, ...]:
    """`head` with `text` in the system turn: appended to the one there is, or as a new first message.

    Empty text returns the head unchanged, so that a teacher without a hint is the student.
    """
    if not text:
        return tuple(head)
    if head and head[0].role == "system":
        first = Message(role="system", content=f"{head[0].content}\n{text}")
        return (first, *head[1:])
    return (Message(role="system", content=text), *head)


def _line(phrases: Sequence[str]) -> str:
    return f"guide : {' . '.join(phrases)} ." if phrases else ""
