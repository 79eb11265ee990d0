"""The shared vocabulary of behavioural rubrics: what a judge may say about a rollout.

The built-in one holds 59 rubrics in 10 skills (`vocabulary.toml`). A user's file has the same form.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections import Counter
from functools import cache
from importlib import resources
from pathlib import Path

import msgspec

from stream_rl.errors import ConfigError


class Rubric(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One behaviour that can be seen, or seen to be missing, in a transcript."""

    id: str  # "<skill>.<short_name>", unique
    skill: str  # the skill it belongs to
    name: str  # a few words
    applies: str  # when it can be decided at all
    positive: str  # what counts as showing it
    violation: str  # what counts as breaking it
    hint: str  # told to the teacher: imperative, lower case, no final stop
    avoid: str  # told to later rollouts when violations dominate: "avoid ...", lower case, no final stop


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


def load(source: str) -> Vocabulary:
    """`"builtin"` or a TOML file. Raises `ConfigError` saying what is wrong in it."""
    if source == "builtin":
        return builtin()
    try:
        return parse(Path(source).read_text(encoding="utf-8"), source)
    except OSError as error:
        raise ConfigError("judge.vocabulary", f"{source!r} cannot be read: {error.strerror}.") from None


def parse(text: str, name: str) -> Vocabulary:
    """A vocabulary from TOML text (`[[rubrics]]` tables). Raises `ConfigError`."""
    try:
        raw = tomllib.loads(text)
        rubrics = msgspec.convert(raw.get("rubrics", []), tuple[Rubric, ...])
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ConfigError("judge.vocabulary", f"{name}: {error}.") from None
    if not rubrics:
        raise ConfigError("judge.vocabulary", f"{name} holds no [[rubrics]] table.")
    for field in ("id", "hint", "avoid"):
        twice = [v for v, n in Counter(getattr(r, field) for r in rubrics).items() if n > 1]
        if twice:
            raise ConfigError("judge.vocabulary", f"{name}: {field} {twice[0]!r} stands more than once.")
    for rubric in rubrics:
        if not rubric.id.startswith(f"{rubric.skill}."):
            raise ConfigError(
                "judge.vocabulary", f"{name}: id {rubric.id!r} does not begin with its skill {rubric.skill!r}."
            )
        for field in rubric.__struct_fields__:
            if not str(getattr(rubric, field)).strip():
                raise ConfigError("judge.vocabulary", f"{name}: {field} of {rubric.id!r} is empty.")
    digest = hashlib.sha256(msgspec.msgpack.encode(rubrics)).hexdigest()[:16]
    return Vocabulary(rubrics=rubrics, digest=digest)
