"""Prompt files, one a world and `generic` for all others; their format is that of `stream_rl.producer.template`."""

from __future__ import annotations

from importlib import resources

GENERIC = "generic"
_SUFFIX = ".txt"


def names() -> list[str]:
    """The worlds that have a file of their own, and `generic`."""
    files = resources.files(__name__).iterdir()
    return sorted(file.name.removesuffix(_SUFFIX) for file in files if file.name.endswith(_SUFFIX))


def read(name: str) -> str:
    """The text of one of `names()`."""
    return resources.files(__name__).joinpath(name + _SUFFIX).read_text(encoding="utf-8")
