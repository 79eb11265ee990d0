"""A trajectory as quoted data: what a judge may see of it, in a form that nothing inside can break out of.

Left out on purpose: success, reward, score, guidance and token ids. A judge describes behaviour; it is not told how
the episode ended.

The quotation is one JSON object a line between two markers. JSON escapes line ends, and "<" and ">" are escaped on
top, so no text inside can spell a marker or start a line of its own.
"""

from __future__ import annotations

import re

import msgspec

from stream_rl.types import Trajectory

OPEN_MARK = "<<<TRANSCRIPT"
CLOSE_MARK = "TRANSCRIPT>>>"
DEFAULT_BUDGET = 24_000  # characters of one quotation, about 6,000 tokens
MIN_BUDGET = 1_000  # room for the task, one turn at each end, and the note about what is missing

# Invisible or direction-changing characters that could hide text from a reader, and C1 controls. JSON itself only
# escapes what lies below U+0020. Lone surrogates have no UTF-8 form at all.
_HIDDEN = re.compile("[\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_ANGLES = {"<": "\\u003c", ">": "\\u003e"}
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
_ENCODER = msgspec.json.Encoder()


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

    A text longer than an eighth of the budget is cut in its middle, with the number of characters left out. Turns
    that do not fit are left out from the middle of the episode, with their number.
    """
    budget = max(budget, MIN_BUDGET)
    limit = budget // 8
    head = [OPEN_MARK, f'{{"task":{_literal(transcript.task, limit)}}}']
    lines = [_turn_line(t, limit) for t in transcript.turns]
    room = budget - sum(len(line) + 1 for line in head) - len(CLOSE_MARK)
    if sum(len(line) + 1 for line in lines) > room:
        lines = _cut_middle(lines, room)
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


def _turn_line(turn: TranscriptTurn, limit: int) -> str:
    action, observation = _literal(turn.action, limit), _literal(turn.observation, limit)
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


def _literal(text: str, limit: int) -> str:
    """`text` as a JSON string literal of at most `limit` characters, cut in the middle if need be."""
    keep = limit
    short = text
    while True:
        if len(short) <= limit:
            literal = _escape(short)
            if len(literal) <= limit:
                return literal
        # Escapes make a character up to twelve long, so the first cut may still be too long.
        keep = keep * 2 // 3
        half = keep // 2
        short = f"{text[:half]} [... {len(text) - 2 * half} characters left out ...] {text[len(text) - half :]}"


def _escape(text: str) -> str:
    if not text.isascii():
        text = _SURROGATES.sub("\ufffd", text)
    literal = _ENCODER.encode(text).decode()
    if "<" in literal or ">" in literal:
        for raw, escaped in _ANGLES.items():
            literal = literal.replace(raw, escaped)
    if not literal.isascii() or "\x7f" in literal:
        literal = _HIDDEN.sub(_unicode_escape, literal)
    return literal


def _unicode_escape(match: re.Match[str]) -> str:
    units = match.group().encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
