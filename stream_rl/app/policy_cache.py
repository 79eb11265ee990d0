"""Built models by content key: built once, whole or not at all, also when two processes want the same one."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def default_folder() -> Path:
    """`$STREAM_RL_CACHE`, else `~/.cache/stream_rl`."""
    named = os.environ.get("STREAM_RL_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "stream_rl"


def cached(folder: Path, key: str, build: Callable[[Path], None]) -> Path:
    """The folder `key` below `folder`, made by `build` if it is not there.

    `build` gets an empty folder, which is renamed into place when it returns; a folder under its final name is
    therefore whole. A second process waits for the first. What a killed build left behind is removed.
    """
    final = folder / key
    if final.is_dir():
        return final
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder / f"{key}.lock"):
        if not final.is_dir():
            building = folder / f"{key}.building"
            shutil.rmtree(building, ignore_errors=True)
            building.mkdir()
            build(building)
            building.rename(final)
    return final


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    # The lock belongs to the open file, so it goes with the process however that ends. The file stays: removing it
    # would let a third process lock a new file while the second still waits on the old one.
    with file.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
