"""The tagging request a judge gets: rendering, and reading it back on the embedded judge's side.

Rendered once for each set of rubrics.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from judge.request import REASON, Entry, Prompt, encode_format, encode_system, fill
from stream_rl.rubrics.vocabulary import Rubric, Vocabulary

VERSION = "tag_v1"
_TOKENS_PER_TAG = 64  # id, a reason of a dozen words and the tag, with room to spare
_RUBRIC_LINE = re.compile(r"^- (.+?) \| applies: ", re.MULTILINE)


class TagPrompt(Prompt, frozen=True, kw_only=True):
    """Asks for the tag of each of some rubrics."""

    rubric_ids: tuple[str, ...]  # asked, in order


def chunks(vocabulary: Vocabulary, size: int) -> tuple[TagPrompt, ...]:
    """Prompts that together ask for the whole vocabulary, at most `size` rubrics each."""
    rubrics = vocabulary.rubrics
    return tuple(render(rubrics[i : i + size]) for i in range(0, len(rubrics), size))


def subset(vocabulary: Vocabulary, rubric_ids: Sequence[str]) -> TagPrompt:
    """A prompt for some rubrics of a vocabulary, in its order."""
    wanted = set(rubric_ids)
    return render(tuple(r for r in vocabulary.rubrics if r.id in wanted))


@lru_cache(maxsize=256)
def render(rubrics: tuple[Rubric, ...]) -> TagPrompt:
    """The prompt for these rubrics."""
    system, frame = fill(VERSION, len(rubrics), "rubrics", "\n".join(map(_rubric_line, rubrics)))
    ids = tuple(r.id for r in rubrics)
    entry: Entry = {
        "id": {"type": "string", "enum": list(ids)},
        "reason": REASON,
        "tag": {"type": "string", "enum": ["positive", "violation", "not_applicable"]},
    }
    return TagPrompt(
        rubric_ids=ids,
        system=system,
        user_frame=frame,
        system_json=encode_system(system),
        response_format=encode_format("tags", len(rubrics), entry, bounded=True),
        unbounded_format=encode_format("tags", len(rubrics), entry, bounded=False),
        max_tokens=256 + _TOKENS_PER_TAG * len(rubrics),
    )


@lru_cache(maxsize=256)
def asked_rubrics(system: str) -> tuple[str, ...]:
    """The rubric ids a rendered system message asks for; empty if it is not one of ours."""
    return tuple(_RUBRIC_LINE.findall(system))


def _rubric_line(rubric: Rubric) -> str:
    # A user's vocabulary may hold line ends; a rubric is one line here.
    parts = (" ".join(text.split()) for text in (rubric.id, rubric.applies, rubric.positive, rubric.violation))
    return "- {} | applies: {} | positive: {} | violation: {}".format(*parts)
