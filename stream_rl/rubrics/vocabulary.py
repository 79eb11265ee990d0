"""The shared vocabulary of behavioural rubrics: what a judge may say about a rollout.

The built-in one holds 59 rubrics in 10 skills (`vocabulary.toml`). A user's file has the same form.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources
from pathlib import Path

import msgspec

from stream_rl.errors import ConfigError
from stream_rl.rubrics.rubric import Rubric
from stream_rl.rubrics.vocabulary_file import read_rubrics

__all__ = ["MAX_CHUNK_CHARS", "Rubric", "Vocabulary", "builtin", "load", "parse"]

# About 10,000 tokens. With the transcript (6,000) and the reply (64 rubrics: 4,400) a request fits into 32,768.
MAX_CHUNK_CHARS = 40_000


class Vocabulary(msgspec.Struct, frozen=True, kw_only=True):
    """Rubrics in a fixed order, which is the axis of every profile."""

    rubrics: tuple[Rubric, ...]  # [num_rubrics]
    digest: str  # hash of the content, part of cache keys

    @property
    def ids(self) -> tuple[str, ...]:
        """Rubric ids in order."""
        return tuple(r.id for r in self.rubrics)

    @property
    def skills(self) -> tuple[str, ...]:
        """Skills in order of first use."""
        return tuple(dict.fromkeys(r.skill for r in self.rubrics))

    def __getitem__(self, rubric_id: str) -> Rubric:
        for rubric in self.rubrics:
            if rubric.id == rubric_id:
                return rubric
        raise KeyError(rubric_id)


@cache
def builtin() -> Vocabulary:
    """The vocabulary this project ships."""
    text = resources.files("stream_rl.rubrics").joinpath("vocabulary.toml").read_text(encoding="utf-8")
    return parse(text, "the built-in vocabulary")


def load(source: str, *, chunk: int | None = None) -> Vocabulary:
    """`"builtin"` or a TOML file. Raises `ConfigError` saying what is wrong in it.

    chunk: rubrics that will be asked in one request; given, requests too long for a judge are refused, too
    """
    vocabulary = builtin() if source == "builtin" else parse(_read(source), source)
    if chunk is not None:
        _check_chunk(vocabulary, source, chunk)
    return vocabulary


def parse(text: str, name: str) -> Vocabulary:
    """A vocabulary from TOML text (`[[rubrics]]` tables). Raises `ConfigError`."""
    rubrics = read_rubrics(text, name)
    digest = hashlib.sha256(msgspec.msgpack.encode(rubrics)).hexdigest()[:16]
    return Vocabulary(rubrics=rubrics, digest=digest)


def _read(source: str) -> str:
    try:
        return Path(source).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError("judge.vocabulary", f"{source!r} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise ConfigError(
            "judge.vocabulary",
            f"{source!r} is not UTF-8 text (byte 0x{byte:02x} at position {error.start}); save it as UTF-8.",
        ) from None


def _check_chunk(vocabulary: Vocabulary, source: str, chunk: int) -> None:
    """The rubrics of one request must leave a judge room for the transcript and its answer."""
    longest = _longest_chunk(vocabulary, chunk)
    if longest <= MAX_CHUNK_CHARS:
        return
    fits = next(n for n in range(chunk - 1, 0, -1) if _longest_chunk(vocabulary, n) <= MAX_CHUNK_CHARS)
    raise ConfigError(
        "judge.chunk",
        f"{chunk} rubrics of {source!r} make one request of {longest:,} characters, more than {MAX_CHUNK_CHARS:,}; "
        f"set it to {fits} or less, or shorten the rubrics.",
    )


def _longest_chunk(vocabulary: Vocabulary, chunk: int) -> int:
    """Characters that a judge is shown of the rubrics of the longest request."""
    sizes = [len(r.id) + len(r.applies) + len(r.positive) + len(r.violation) for r in vocabulary.rubrics]
    return max(sum(sizes[i : i + chunk]) for i in range(0, len(sizes), chunk))
