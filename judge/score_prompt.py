"""The scoring request a judge gets: rendering, and reading it back on the embedded judge's side.

Criteria are written by the policy, so they are quoted as a transcript is: one JSON object a line between two markers.
A criterion keeps its number in every request that asks for it, so that no reply can be counted for another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import msgspec

from judge.literal import literal
from judge.request import REASON, Entry, Prompt, encode_format, encode_system, fill

VERSION = "score_v1"
MAX_CRITERION = 1_000  # characters of one quoted criterion; a longer one is cut in its middle
_TOKENS_PER_SCORE = 64  # id, a reason of a dozen words and the score, with room to spare
_OPEN_MARK = "<<<CRITERIA"
_CLOSE_MARK = "CRITERIA>>>"


class NumberedCriterion(msgspec.Struct, frozen=True, kw_only=True):
    """One criterion as a request lists it."""

    id: int  # from 1, in the order the criteria were given
    criterion: str  # what to look for


_DECODER = msgspec.json.Decoder(NumberedCriterion)


class ScorePrompt(Prompt, frozen=True, kw_only=True):
    """Asks how far each of some criteria is satisfied."""

    ids: tuple[int, ...]  # numbers asked, in order


class MalformedCriteria(ValueError):
    """A list of criteria that cannot be read. The message says where."""


def number(criteria: Sequence[str]) -> tuple[NumberedCriterion, ...]:
    """Criteria with their numbers."""
    return tuple(NumberedCriterion(id=i, criterion=text) for i, text in enumerate(criteria, 1))


# The members of a group are scored on the same criteria one after another.
@lru_cache(maxsize=256)
def render(criteria: tuple[NumberedCriterion, ...]) -> ScorePrompt:
    """The prompt for these criteria."""
    system, frame = fill(VERSION, len(criteria), "criteria", "\n".join(map(_line, criteria)))
    ids = tuple(c.id for c in criteria)
    entry: Entry = {
        "id": {"type": "integer", "enum": list(ids)},
        "reason": REASON,
        "score": {"type": ["number", "null"]},
    }
    return ScorePrompt(
        ids=ids,
        system=system,
        user_frame=frame,
        system_json=encode_system(system),
        response_format=encode_format("scores", len(criteria), entry, bounded=True),
        unbounded_format=encode_format("scores", len(criteria), entry, bounded=False),
        max_tokens=256 + _TOKENS_PER_SCORE * len(criteria),
    )


@lru_cache(maxsize=256)
def asked_criteria(system: str) -> tuple[NumberedCriterion, ...]:
    """The criteria a rendered system message lists; empty if it is not one of ours. Raises `MalformedCriteria`."""
    start = system.find(f"\n{_OPEN_MARK}\n")
    stop = system.find(f"\n{_CLOSE_MARK}\n", start + 1)
    if start < 0 or stop < 0:
        return ()
    found: list[NumberedCriterion] = []
    for place, line in enumerate(system[start + len(_OPEN_MARK) + 2 : stop].split("\n"), 1):
        try:
            found.append(_DECODER.decode(line))
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            raise MalformedCriteria(f"unreadable criterion line {place}: {error}") from None
    return tuple(found)


def _line(numbered: NumberedCriterion) -> str:
    return f'{{"id":{numbered.id},"criterion":{literal(numbered.criterion, MAX_CRITERION)}}}'
