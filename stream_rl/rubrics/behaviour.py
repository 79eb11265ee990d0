"""What a rollout did, without how it ended: the only view of a trajectory that the policy gets when it writes rubrics.

`acts_of` drops everything that tells an outcome: rewards, the success flag, the score, and the world's answer to the
last action, where worlds announce the end. What is built on acts therefore cannot show one. The number of actions
stays visible; so does whatever a world says about progress while the episode goes on. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec

from stream_rl.types import Trajectory

OPEN_MARK = "<<<TRANSCRIPTS"
CLOSE_MARK = "TRANSCRIPTS>>>"
TASK_CHARS = 2000  # longest quotation of the task
TEXT_CHARS = 400  # longest quotation of one action or one answer
MIN_TURNS = 2  # an excerpt shows the first and the last action at least


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """One action and what the world said to it."""

    action: str  # as decoded
    answer: str | None  # the world's text; None after the last action
    taken: bool  # False: the world did not understand it, or nothing happened; True after the last action


class Excerpt(msgspec.Struct, frozen=True, kw_only=True):
    """The acts of one rollout that are shown."""

    first: tuple[Act, ...]  # from the beginning
    omitted: int  # acts left out after them
    last: tuple[Act, ...]  # to the end

    @property
    def total(self) -> int:
        """Acts of the rollout, shown or not."""
        return len(self.first) + self.omitted + len(self.last)


def acts_of(trajectory: Trajectory) -> tuple[Act, ...]:
    """The actions in order, each with its answer; the last one without, and without whether it was taken."""
    earlier, last = trajectory.turns[:-1], trajectory.turns[-1:]
    return (
        *(Act(action=turn.action, answer=turn.observation, taken=turn.valid) for turn in earlier),
        *(Act(action=turn.action, answer=None, taken=True) for turn in last),
    )


def excerpt(acts: Sequence[Act], num_turns: int) -> Excerpt:
    """At most `num_turns` acts: the first half (the larger one) and the last; what lies between is counted."""
    if num_turns < MIN_TURNS:
        raise ValueError(f"an excerpt has at least {MIN_TURNS} turns, not {num_turns}")
    if len(acts) <= num_turns:
        return Excerpt(first=tuple(acts), omitted=0, last=())
    back = num_turns // 2
    front = num_turns - back
    return Excerpt(first=tuple(acts[:front]), omitted=len(acts) - num_turns, last=tuple(acts[-back:]))


def quoted(task: str, excerpts: Sequence[Excerpt]) -> str:
    """The task and each transcript as JSON lines between two markers.

    JSON escapes line ends, and angle brackets and invisible characters are escaped on top, so no text inside can
    spell a marker, a heading or a line of its own. Long texts are cut in their middle (`TASK_CHARS`, `TEXT_CHARS`).
    """
    lines = [OPEN_MARK, f'{{"task": {_literal(task, TASK_CHARS)}}}']
    for number, shown in enumerate(excerpts, 1):
        lines.append(f"transcript {number}:")
        lines += [_quoted_act(turn, act) for turn, act in enumerate(shown.first, 1)]
        if shown.omitted:
            lines.append(f"[... {shown.omitted} turn{'s' if shown.omitted > 1 else ''} left out ...]")
        lines += [_quoted_act(turn, act) for turn, act in enumerate(shown.last, shown.total - len(shown.last) + 1)]
    return "\n".join([*lines, CLOSE_MARK])


def compact(excerpts: Sequence[Excerpt]) -> str:
    """Actions alone, one line a transcript, in words that a small vocabulary knows.

    "1 : look . nothing happens . go to desk 1 . . . . open drawer 2 ." where ". . ." stands for turns left out.
    """
    return "\n".join(
        " ".join(
            [
                f"{number} :",
                *map(_compact_act, shown.first),
                *([". . ."] if shown.omitted else []),
                *map(_compact_act, shown.last),
            ]
        )
        for number, shown in enumerate(excerpts, 1)
    )


def _quoted_act(turn: int, act: Act) -> str:
    parts = [f'"turn": {turn}', f'"action": {_literal(act.action, TEXT_CHARS)}']
    if act.answer is not None:
        parts.append(f'"answer": {_literal(act.answer, TEXT_CHARS)}')
    if not act.taken:
        parts.append('"taken": false')
    return f"{{{', '.join(parts)}}}"


def _compact_act(act: Act) -> str:
    visible = "".join(c if c.isprintable() else " " for c in _cut(act.action, TEXT_CHARS))
    said = " ".join([*visible.split(), "."])
    return said if act.taken else f"{said} nothing happens ."


def _literal(text: str, limit: int) -> str:
    """`text` as a JSON string with nothing in it that is invisible, spells a tag or ends a line."""
    literal = json.dumps(_cut(text.strip(), limit), ensure_ascii=False)
    if literal.isprintable() and "<" not in literal and ">" not in literal:
        return literal
    return "".join(map(_escaped, literal))


def _escaped(character: str) -> str:
    if character in "<>":
        return f"\\u{ord(character):04x}"
    # An unprintable character beyond U+FFFF becomes a pair of escapes, as JSON wants it.
    return character if character.isprintable() else json.dumps(character)[1:-1]


def _cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]} [... {len(text) - 2 * half} characters left out ...] {text[-half:]}"
