"""A trajectory as quoted data: what a judge may see of it, in a form that nothing inside can break out of.

Left out on purpose: success, reward, score, guidance and token ids. A judge describes behaviour; it is not told how
the episode ended.

The quotation is one JSON object a line between two markers; `judge.literal` keeps every text on its line and unable to
spell a marker.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from judge.literal import literal
from stream_rl.types import Trajectory

OPEN_MARK = "<<<TRANSCRIPT"
CLOSE_MARK = "TRANSCRIPT>>>"
DEFAULT_BUDGET = 24_000  # characters of one quotation, about 6,000 tokens
MIN_BUDGET = 1_000  # room for the task, one turn at each end, and the note about what is missing
_SHORT_TEXT = 300  # characters that every text may have before a turn is left out

_LEFT_OUT = re.compile(r"\[\.\.\. (\d+) turns? left out \.\.\.\]")


class TranscriptTurn(msgspec.Struct, frozen=True, kw_only=True):
    """One action and the world's answer."""

    turn: int  # from 1
    action: str  # what the agent did
    observation: str  # what the world answered
    valid: bool  # whether the world understood the action


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """What a judge reads.

    >>> Transcript(task="You see cabinet 1. Your task is to: put some mug in desk.", turns=()).left_out
    0
    """

    task: str  # first observation, task text included
    turns: tuple[TranscriptTurn, ...]  # in order
    left_out: int = 0  # turns missing from the middle


class MalformedTranscript(ValueError):
    """Text that holds no readable quotation. The message says what is missing."""


class _TaskLine(msgspec.Struct, frozen=True, kw_only=True):
    task: str


_TASK_DECODER = msgspec.json.Decoder(_TaskLine)
_TURN_DECODER = msgspec.json.Decoder(TranscriptTurn)


def from_trajectory(trajectory: Trajectory) -> Transcript:
    """The judge's view of a trajectory."""
    return Transcript(
        task=trajectory.first_prompt,
        turns=tuple(
            TranscriptTurn(turn=i, action=t.action, observation=t.observation, valid=t.valid)
            for i, t in enumerate(trajectory.turns, 1)
        ),
    )


def quote(transcript: Transcript, budget: int = DEFAULT_BUDGET) -> str:
    """The quotation, at most `budget` characters long (not less than `MIN_BUDGET`).

    A text longer than an eighth of the budget is cut in its middle, with the number of characters left out. Where the
    turns do not fit, texts are cut shorter first, to `_SHORT_TEXT` at the least: a judge that reads how each turn
    began sees more than one that misses turns, and a few long texts cannot push the others out. Turns that still do
    not fit are left out from the middle of the episode, with their number.
    """
    budget = max(budget, MIN_BUDGET)
    limit = budget // 8
    while True:
        head = [OPEN_MARK, f'{{"task":{literal(transcript.task, limit)}}}']
        lines = [_turn_line(t, limit) for t in transcript.turns]
        room = budget - _length(head) - len(CLOSE_MARK)
        if _length(lines) <= room:
            break
        if limit // 2 < _SHORT_TEXT:
            lines = _cut_middle(lines, room)
            break
        limit //= 2
    return "\n".join([*head, *lines, CLOSE_MARK])


def unquote(text: str) -> Transcript:
    """The transcript in a text that holds one quotation. Raises `MalformedTranscript`."""
    start = text.find(OPEN_MARK + "\n")
    stop = text.find("\n" + CLOSE_MARK, start + 1)
    if start < 0 or stop < 0:
        raise MalformedTranscript(f"no transcript between {OPEN_MARK} and {CLOSE_MARK}")
    task_line, *turn_lines = text[start + len(OPEN_MARK) + 1 : stop].split("\n")
    left_out = 0
    turns: list[TranscriptTurn] = []
    try:
        task = _TASK_DECODER.decode(task_line).task
        for line in turn_lines:
            if gap := _LEFT_OUT.fullmatch(line):
                left_out += int(gap.group(1))
            else:
                turns.append(_TURN_DECODER.decode(line))
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise MalformedTranscript(f"unreadable transcript line {len(turns) + 1}: {error}") from None
    return Transcript(task=task, turns=tuple(turns), left_out=left_out)


def _length(lines: Sequence[str]) -> int:
    """Characters with line ends."""
    return sum(len(line) + 1 for line in lines)


def _turn_line(turn: TranscriptTurn, limit: int) -> str:
    action, observation = literal(turn.action, limit), literal(turn.observation, limit)
    valid = "true" if turn.valid else "false"
    return f'{{"turn":{turn.turn},"action":{action},"observation":{observation},"valid":{valid}}}'


def _cut_middle(lines: list[str], room: int) -> list[str]:
    """Keep lines alternately from the front and from the back while they and the note fit into `room`."""
    note = f"[... {len(lines)} turns left out ...]"
    room -= len(note) + 1
    front, back = 0, 0
    while front + back < len(lines):
        at_front = front <= back
        cost = len(lines[front] if at_front else lines[-1 - back]) + 1
        if cost > room:
            break
        room -= cost
        front, back = (front + 1, back) if at_front else (front, back + 1)
    missing = len(lines) - front - back
    note = f"[... {missing} turn{'s' if missing != 1 else ''} left out ...]"
    return [*lines[:front], note, *lines[len(lines) - back :]]
