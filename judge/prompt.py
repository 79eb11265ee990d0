"""The request a judge gets: rendering, and reading it back on the embedded judge's side.

The text lies in `prompts/<version>.txt`. Everything that does not depend on the transcript is rendered once for each
set of rubrics, and is the system message, so that endpoints with a prefix cache reuse it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from importlib import resources

import msgspec

from stream_rl.rubrics.vocabulary import Rubric, Vocabulary

VERSION = "tag_v1"
_SPLIT = "=== user ===\n"
_TOKENS_PER_TAG = 64  # id, a reason of a dozen words and the tag, with room to spare
_RUBRIC_LINE = re.compile(r"^- (.+?) \| applies: ", re.MULTILINE)


class TagPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a tagging request that is the same for every transcript."""

    rubric_ids: tuple[str, ...]  # asked, in order
    system: str  # system message
    user_frame: tuple[str, str]  # what stands before and after the quoted transcript
    system_json: msgspec.Raw  # the system message as encoded JSON
    response_format: msgspec.Raw  # JSON schema of the reply, encoded
    max_tokens: int  # limit of the reply

    def user(self, quotation: str) -> str:
        """The user message around a quoted transcript."""
        before, after = self.user_frame
        return f"{before}{quotation}{after}"


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
    system, user = (part.replace("{count}", str(len(rubrics))) for part in _template())
    system = system.replace("{rubrics}", "\n".join(map(_rubric_line, rubrics))).rstrip("\n")
    before, _, after = user.rstrip("\n").partition("{transcript}")
    ids = tuple(r.id for r in rubrics)
    return TagPrompt(
        rubric_ids=ids,
        system=system,
        user_frame=(before, after),
        system_json=msgspec.Raw(msgspec.json.encode({"role": "system", "content": system})),
        response_format=msgspec.Raw(msgspec.json.encode(_response_format(ids))),
        max_tokens=256 + _TOKENS_PER_TAG * len(rubrics),
    )


@lru_cache(maxsize=256)
def asked_rubrics(system: str) -> tuple[str, ...]:
    """The rubric ids a rendered system message asks for; empty if it is not one of ours."""
    return tuple(_RUBRIC_LINE.findall(system))


def _template() -> tuple[str, str]:
    text = resources.files("judge.prompts").joinpath(f"{VERSION}.txt").read_text(encoding="utf-8")
    system, _, user = text.partition(_SPLIT)
    return system, user


def _rubric_line(rubric: Rubric) -> str:
    # A user's vocabulary may hold line ends; a rubric is one line here.
    parts = (" ".join(text.split()) for text in (rubric.id, rubric.applies, rubric.positive, rubric.violation))
    return "- {} | applies: {} | positive: {} | violation: {}".format(*parts)


def _response_format(ids: Sequence[str]) -> dict[str, object]:
    entry = {
        "type": "object",
        "properties": {
            "id": {"type": "string", "enum": list(ids)},
            "reason": {"type": "string"},
            "tag": {"type": "string", "enum": ["positive", "violation", "not_applicable"]},
        },
        "required": ["id", "reason", "tag"],
        "additionalProperties": False,
    }
    schema = {
        "type": "object",
        "properties": {"tags": {"type": "array", "items": entry}},
        "required": ["tags"],
        "additionalProperties": False,
    }
    return {"type": "json_schema", "json_schema": {"name": "tags", "strict": True, "schema": schema}}
