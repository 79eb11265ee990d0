"""AppWorld's data folder: which tasks there are, in upstream's order."""

from __future__ import annotations

import difflib
from functools import cache
from pathlib import Path

from stream_rl.errors import ConfigError

_PATH = "environments.options"


def data_folder(given: str) -> Path:
    """The folder with `datasets` and `tasks`: `given` itself, or `data` in AppWorld's root. Raises `ConfigError`."""
    if not given:
        raise ConfigError(
            f"{_PATH}.data",
            "appworld needs its tasks: name the folder that `appworld download data --root FOLDER` has filled.",
        )
    for folder in (Path(given) / "data", Path(given)):
        if (folder / "datasets").is_dir():
            return folder
    raise ConfigError(f"{_PATH}.data", f"{given!r} holds neither data/datasets nor datasets, as AppWorld's root does.")


@cache
def task_ids(data: Path, dataset: str, option: str) -> tuple[str, ...]:
    """Ids of a dataset, such as "train" or "test_normal". Raises `ConfigError` at `option`."""
    file = data / "datasets" / f"{dataset}.txt"
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        there = sorted(path.stem for path in (data / "datasets").glob("*.txt"))
        near = difflib.get_close_matches(dataset, there, n=1)
        raise ConfigError(
            f"{_PATH}.{option}",
            f"{file} cannot be read ({error.strerror}); there are {', '.join(there) or 'none'}.",
            nearest=near[0] if near else None,
        ) from None
    # An id may carry a tag behind a colon, which upstream drops too.
    ids = tuple(line.strip().partition(":")[0] for line in lines if line.strip())
    if not ids:
        raise ConfigError(f"{_PATH}.{option}", f"{file} names no task.")
    return ids
