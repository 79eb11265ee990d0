"""Which folders hold a game, of which kind it is, and which games are left out and why."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args

import msgspec

from stream_rl.errors import ConfigError

Kind = Literal[
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
]
KINDS: tuple[Kind, ...] = get_args(Kind)

DATASET = "json_2.1.1"  # upstream's folder below $ALFWORLD_DATA
SPLITS = ("train", "valid_seen", "valid_unseen")  # folders below it
GAME_FILE, TRIAL_FILE = "game.tw-pddl", "traj_data.json"


class Stamp(msgspec.Struct, frozen=True, array_like=True):
    """A file's state: while it is the same the file need not be read again."""

    size: int  # bytes
    changed_ns: int  # time of the last change


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What has to be known of a game before it is played."""

    stamps: tuple[Stamp, Stamp]  # of game file and trial file
    kind: str = ""  # task type as the trial file has it
    movable: bool = False  # the goal moves a receptacle, which the text games do not support
    sliced: bool = False  # the goal needs a sliced object, which they do not support either
    solvable: bool = False  # upstream's mark: somebody has played it to a win
    unreadable: str = ""  # why its files cannot be read


class Game(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One playable game."""

    path: str  # of its game file
    folder: str  # below which of the split folders it lies; empty where there are none
    kind: str  # one of `KINDS`


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """All games below a data folder."""

    games: tuple[Game, ...]  # by path
    skipped: dict[str, int]  # reason: how many


class _Params(msgspec.Struct, frozen=True):
    mrecep_target: str = ""
    object_sliced: bool = False


class _Trial(msgspec.Struct, frozen=True):
    task_type: str
    pddl_params: _Params


class _Mark(msgspec.Struct, frozen=True):
    solvable: bool | None = None


def data_folder(data: str) -> Path:
    """The folder with the games: `data`, else `$ALFWORLD_DATA`, else upstream's own default.

    Raises `ConfigError` for one that does not exist.
    """
    named = os.environ.get("ALFWORLD_DATA", "")
    if data:
        folder, origin = Path(data), "data"
    elif named:
        folder, origin = Path(named), "$ALFWORLD_DATA"
    else:
        folder, origin = Path.home() / ".cache" / "alfworld", "upstream's default: data and $ALFWORLD_DATA are not set"
    folder = folder.expanduser()
    if not folder.is_dir():
        raise ConfigError(
            "environments.options",
            f"alfworld: there is no folder {folder} ({origin}); download the games with `alfworld-download`, or make "
            "some with `stream-rl envs make alfworld DIR`.",
        )
    return folder / DATASET if (folder / DATASET).is_dir() else folder


def trials(base: Path) -> Iterator[tuple[str, str, Stamp | None, Stamp]]:
    """Every trial below `base`: split folder, path from there, stamps of its game file (None: missing) and trial file.

    Where `base` has upstream's split folders only they are searched. Links to folders are not followed.
    """
    folders = [name for name in SPLITS if (base / name).is_dir()]
    for name in folders or [""]:
        for place, _, files in os.walk(base / name):
            if TRIAL_FILE in files:
                game = _stamp(os.path.join(place, GAME_FILE)) if GAME_FILE in files else None
                yield name, os.path.relpath(place, base), game, _stamp(os.path.join(place, TRIAL_FILE))


def read_facts(folder: Path, stamps: tuple[Stamp, Stamp]) -> Facts:
    """The facts of the game in `folder`. Never raises for what is wrong with its files: that is a fact too."""
    try:
        trial = msgspec.json.decode((folder / TRIAL_FILE).read_bytes(), type=_Trial)
        mark = msgspec.json.decode((folder / GAME_FILE).read_bytes(), type=_Mark)
    except (OSError, msgspec.DecodeError) as error:
        return Facts(stamps=stamps, unreadable=f"{folder}: {error}")
    return Facts(
        stamps=stamps,
        kind=trial.task_type,
        movable=bool(trial.pddl_params.mrecep_target),
        sliced=trial.pddl_params.object_sliced,
        solvable=mark.solvable is True,
    )


def reason_to_skip(place: str, facts: Facts | None) -> str:
    """Why the game at `place` (a path below the data folder) is no task; empty for one that is. None: no game file.

    The order is upstream's own, and so is looking for two words in the path.
    """
    if "movable" in place or (facts is not None and facts.movable):
        return "movable receptacle"
    if "Sliced" in place or (facts is not None and facts.sliced):
        return "sliced object"
    if facts is None:
        return f"no {GAME_FILE}"
    if facts.unreadable:
        return "unreadable"
    if facts.kind not in KINDS:
        return "other kind of task"
    return "" if facts.solvable else "not marked solvable"


def sort_out(base: Path, known: dict[str, tuple[str, Facts | None]]) -> Found:
    """Games and counts from the split folder and facts of each place."""
    games, skipped = [], Counter[str]()
    for place, (folder, facts) in known.items():
        if (reason := reason_to_skip(place, facts)) or facts is None:
            skipped[reason] += 1
        else:
            games.append(Game(path=str(base / place / GAME_FILE), folder=folder, kind=facts.kind))
    return Found(games=tuple(sorted(games)), skipped=dict(sorted(skipped.items())))


def _stamp(path: str) -> Stamp:
    found = os.stat(path)
    return Stamp(found.st_size, found.st_mtime_ns)
