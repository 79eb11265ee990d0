"""Foreign text as one quoted JSON string that nothing inside can break out of.

JSON escapes line ends, and "<" and ">" are escaped on top, so no text inside can spell a marker of ours or start a
line of its own. Invisible characters are escaped too: what a judge reads is what a reader of the log sees.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable

import msgspec

# Invisible or direction-changing characters that could hide text from a reader, and C1 controls. JSON itself only
# escapes what lies below U+0020. Lone surrogates have no UTF-8 form at all.
_HIDDEN = re.compile("[\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_ANGLES = {"<": "\\u003c", ">": "\\u003e"}

_ENCODER = msgspec.json.Encoder()


def literal(text: str, limit: int) -> str:
    """`text` as a JSON string literal of at most `limit` characters, cut in the middle if need be.

    Beginning and end get equal room as it is written, escapes included: text that is mostly escapes cannot crowd out
    what stands before it.

    limit: more than the note about what was cut needs, about 60
    """
    if len(text) <= limit:
        quoted = _escape(text)
        if len(quoted) <= limit:
            return quoted
    room = (limit - len(_escape(_note(len(text))))) // 2
    head, tail = _beginning(text[:room], room), _end(text[-room:], room)
    return _escape(f"{head}{_note(len(text) - len(head) - len(tail))}{tail}")


def _note(missing: int) -> str:
    return f" [... {missing} characters left out ...] "


def _beginning(text: str, room: int) -> str:
    """The longest beginning that takes at most `room` characters once escaped."""
    return text[: _longest(len(text), room, lambda length: text[:length])]


def _end(text: str, room: int) -> str:
    """The longest end that takes at most `room` characters once escaped."""
    return text[len(text) - _longest(len(text), room, lambda length: text[len(text) - length :]) :]


def _longest(most: int, room: int, part: Callable[[int], str]) -> int:
    return bisect_right(range(most + 1), room + len('""'), key=lambda length: len(_escape(part(length)))) - 1


def _escape(text: str) -> str:
    if not text.isascii():
        text = _SURROGATES.sub("\ufffd", text)
    quoted = _ENCODER.encode(text).decode()
    if "<" in quoted or ">" in quoted:
        for raw, escaped in _ANGLES.items():
            quoted = quoted.replace(raw, escaped)
    if not quoted.isascii() or "\x7f" in quoted:
        quoted = _HIDDEN.sub(_unicode_escape, quoted)
    return quoted


def _unicode_escape(match: re.Match[str]) -> str:
    units = match.group().encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
