"""The files that decide what the embedded policies become."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources
from typing import Protocol

# Package, and the names of its files; None: all of its Python.
Sources = tuple[str, tuple[str, ...] | None]

SOURCES: tuple[Sources, ...] = (
    ("envs.household", None),
    ("learner", ("imitation.py", "small_models.py")),
    ("stream_rl.app", ("embedded_demos.py", "embedded_tokenizer.py")),
)
WRITER_SOURCES: tuple[Sources, ...] = (
    ("judge.rules", None),
    ("stream_rl.app", ("embedded_writing.py",)),
    ("stream_rl.rubrics", ("behaviour.py", "writing.py")),
    ("stream_rl.rubrics.prompts", ("write_compact_v1.txt",)),
)
# Where recipes and keys are put together. A key hashes the recipe itself, so these are no part of it.
RECIPES: tuple[Sources, ...] = (("stream_rl.app", ("embedded_policy.py", "embedded_recipe.py", "embedded_sources.py")),)


class Digest(Protocol):
    """A hash that is being made."""

    def update(self, data: bytes, /) -> None:
        """Add to it."""
        ...


def add_sources(digest: Digest, sources: Iterable[Sources]) -> None:
    """Names and contents, in the order given; the files of one package by name."""
    for package, names in sources:
        folder = resources.files(package)
        for file in sorted(folder.iterdir(), key=lambda file: file.name):
            if file.name in names if names is not None else file.name.endswith(".py"):
                digest.update(f"{package}/{file.name}".encode())
                digest.update(file.read_bytes())
