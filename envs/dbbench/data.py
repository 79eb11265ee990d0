"""The user's data: AgentBench's jsonl files, which of their rows are tasks, and which split each belongs to."""

from __future__ import annotations

import hashlib
import json
import logging
import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from envs.dbbench.records import Record, Skipped, read_record, table_digest
from stream_rl.errors import ConfigError
from stream_rl.types import Split

log = logging.getLogger(__name__)

SplitBy = Literal["tables", "files"]

_HELD_OUT_SHARE = 5  # one in so many tables
_HELD_OUT_FILES = ("standard", "std", "test", "held_out")  # beginnings of names of files that upstream evaluates on
_PATH = "environments.options.data"
_SUFFIXES = (".jsonl", ".json")


class Data(msgspec.Struct, frozen=True, kw_only=True):
    """What was read."""

    records: tuple[Record, ...]  # the tasks, in the order of files and lines
    skipped: tuple[Skipped, ...]  # rows that cannot be tasks


@cache
def load(path: str) -> Data:
    """A file, or all .jsonl and .json files of a folder. Read once a process; each skipped row is warned of.

    Raises `ConfigError` for a path that holds no DBBench rows.
    """
    records: list[Record] = []
    skipped: list[Skipped] = []
    for file in _files(Path(path)):
        for number, row in _rows(file):
            try:
                read = read_record(f"{file.stem}:{number}", row)
            except msgspec.ValidationError as error:
                raise ConfigError(_PATH, f"{file}, row {number}: not a DBBench task: {error}.") from None
            if isinstance(read, Skipped):
                log.warning("dbbench: row %s of %s is skipped: %s", number, file, read.reason)
                skipped.append(read)
            else:
                records.append(read)
    if not records:
        raise ConfigError(_PATH, f"{path} holds no usable DBBench task.")
    return Data(records=tuple(records), skipped=tuple(skipped))


def select(records: Sequence[Record], split: Split, by: SplitBy) -> tuple[Record, ...]:
    """The tasks of a split.

    By "tables": of all tables, about one in five is held out, chosen by a hash of its content, so that no table is
    seen in both splits, whatever file or order it comes in. By "files": files whose names begin with standard, std,
    test or held_out are held out, as upstream uses them, and all others are for training.
    """
    wanted = split == "held_out"
    return tuple(record for record in records if _held_out(record, by) == wanted)


def draw(records: Sequence[Record], split: Split, index: int) -> Record:
    """Task number `index` of a split's seeded order; each pass through the split has an order of its own."""
    turn, position = divmod(index, len(records))
    return records[_order(len(records), split, turn)[position]]


@cache
def _order(size: int, split: Split, turn: int) -> tuple[int, ...]:
    order = list(range(size))
    random.Random(f"dbbench/{split}/{turn}").shuffle(order)
    return tuple(order)


def _held_out(record: Record, by: SplitBy) -> bool:
    if by == "files":
        return record.id.startswith(_HELD_OUT_FILES)
    return int.from_bytes(hashlib.sha256(table_digest(record)).digest()[:4], "big") % _HELD_OUT_SHARE == 0


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise ConfigError(_PATH, f"{path} is neither a file nor a folder; expected AgentBench's dbbench data.")
    files = sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES)
    if not files:
        raise ConfigError(_PATH, f"{path} holds no {' or '.join(_SUFFIXES)} file; expected AgentBench's dbbench data.")
    return files


def _rows(file: Path) -> list[tuple[int, object]]:
    """Rows with their number, from 0: lines of a .jsonl file, members of a .json list."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(_PATH, f"{file} cannot be read: {error}.") from None
    number = 0
    try:
        if file.suffix == ".json":
            rows = json.loads(text)
            if not isinstance(rows, list):
                raise ConfigError(_PATH, f"{file} holds {type(rows).__name__}, expected a list of tasks.")
            return list(enumerate(rows))
        found: list[tuple[int, object]] = []
        for number, line in enumerate(text.split("\n")):
            if line.strip():
                found.append((number, json.loads(line)))
        return found
    except json.JSONDecodeError as error:
        raise ConfigError(_PATH, f"{file}, row {number}: not JSON: {error}.") from None
