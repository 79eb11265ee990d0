"""The games below a data folder. What was read from their files is remembered, so a restart reads only what changed."""

from __future__ import annotations

import hashlib
import logging
import os
from functools import cache
from pathlib import Path

import msgspec

from envs.alfworld.games import Facts, Found, read_facts, sort_out, trials
from stream_rl.errors import ConfigError

log = logging.getLogger(__name__)

_FORMAT = 1  # a memory of another format is not read
_TOLD = 3  # unreadable games named in the log; the others are counted


class _Memory(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    base: str  # whose games these are
    facts: dict[str, Facts]  # by path below it


def memory_folder() -> Path:
    """`$STREAM_RL_CACHE`, else `~/.cache/stream_rl`, and `alfworld` below it."""
    named = os.environ.get("STREAM_RL_CACHE")
    return (Path(named) if named else Path.home() / ".cache" / "stream_rl") / "alfworld"


@cache
def list_games(base: Path) -> Found:
    """All games below `base`, once for a process. Raises `ConfigError` when not one can be played."""
    found = find_games(
        base, memory_folder() / f"{hashlib.sha256(str(base.resolve()).encode()).hexdigest()[:16]}.msgpack"
    )
    if not found.games:
        why = ", ".join(f"{count} {reason}" for reason, count in found.skipped.items()) or "no trial folder"
        raise ConfigError("environments.options", f"alfworld: {base} holds no game that can be played ({why}).")
    return found


def find_games(base: Path, memory: Path) -> Found:
    """All games below `base`, with the help of the file `memory`, which is written anew when it was not up to date."""
    old = _remembered(memory, base)
    known: dict[str, tuple[str, Facts | None]] = {}
    for folder, place, game, trial in trials(base):
        facts = None
        if game is not None:
            facts = old.get(place)
            if facts is None or facts.stamps != (game, trial):
                facts = read_facts(base / place, (game, trial))
        known[place] = (folder, facts)
    new = {place: facts for place, (_, facts) in known.items() if facts is not None}
    if new != old:
        _remember(memory, _Memory(format=_FORMAT, base=str(base.resolve()), facts=new))
    unreadable = [facts.unreadable for facts in new.values() if facts.unreadable]
    for problem in unreadable[:_TOLD]:
        log.warning("alfworld: cannot read %s", problem)
    return sort_out(base, known)


def _remembered(memory: Path, base: Path) -> dict[str, Facts]:
    try:
        found = msgspec.msgpack.decode(memory.read_bytes(), type=_Memory)
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError) as error:
        log.warning("alfworld: %s is not used and the games are read again: %s", memory, error)
        return {}
    return found.facts if (found.format, found.base) == (_FORMAT, str(base.resolve())) else {}


def _remember(memory: Path, listing: _Memory) -> None:
    """Written beside and renamed, since the workers of a run all start at once."""
    beside = memory.with_suffix(f".{os.getpid()}")
    try:
        memory.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(msgspec.msgpack.encode(listing))
        beside.replace(memory)
    except OSError as error:
        log.warning("alfworld: the listing of the games cannot be kept, every start reads them all: %s", error)
