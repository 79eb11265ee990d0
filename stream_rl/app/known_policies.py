"""Which built policy a name stands for, remembered beside the built ones.

The key of an embedded policy is a hash of its recipe, and a recipe is made of types that need torch: seconds for a
name. It follows from files alone, so a hash of the files finds it again at once, until one of them changes.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import msgspec

from stream_rl.app.embedded_sources import RECIPES, SOURCES, WRITER_SOURCES, add_sources

_FOLDER = "known"


def recall(cache: Path, name: str) -> Path | None:
    """The built folder that `remember` was told of, if it is there still and no source has changed since."""
    file = _file(cache, name)
    if not file.is_file():
        return None
    folder = cache / file.read_text(encoding="utf-8")
    return folder if folder.is_dir() else None


def remember(cache: Path, name: str, folder: Path) -> None:
    """`name` stands for `folder`, which lies in `cache`. A cache that only others may write stays as it is."""
    file = _file(cache, name)
    if not os.access(cache, os.W_OK):
        return
    file.parent.mkdir(exist_ok=True)
    beside = file.with_suffix(f".{os.getpid()}")
    beside.write_text(folder.name, encoding="utf-8")
    beside.replace(file)  # whole or not at all, whoever else writes the same


def _file(cache: Path, name: str) -> Path:
    # The version, because a key also depends on how msgspec writes a recipe.
    digest = hashlib.sha256(f"{name}/{msgspec.__version__}".encode())
    add_sources(digest, (*SOURCES, *WRITER_SOURCES, *RECIPES))
    return cache / _FOLDER / f"{name}-{digest.hexdigest()[:16]}"
