"""Games of the two splits, in the order in which a task's index counts them."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Literal

from envs.alfworld.games import Game
from stream_rl.types import Split

HeldOut = Literal["valid_seen", "valid_unseen", "both"]

_SHARE = 0.1  # of the games of a folder without split folders, held out


def split_games(
    games: Sequence[Game], *, kinds: Collection[str], held_out: HeldOut, seed: int
) -> dict[Split, tuple[Game, ...]]:
    """Training and held-out games of some kinds, each in an order that `seed` decides.

    Upstream's split folders decide where there are any. Otherwise about one game in ten is held out, by the hash of
    task and trial; of two games or more at least one, and never the last.
    """
    wanted = [game for game in games if game.kind in kinds]
    if any(game.folder for game in wanted):
        folders = {"valid_seen", "valid_unseen"} if held_out == "both" else {held_out}
        train = [game for game in wanted if game.folder == "train"]
        held = [game for game in wanted if game.folder in folders]
    else:
        ranked = sorted(wanted, key=_rank)
        num_held = sum(_rank(game) < _SHARE for game in ranked[:-1]) or len(ranked[:-1][:1])
        held, train = ranked[:num_held], ranked[num_held:]
    return {"train": _shuffled(train, "train", seed), "held_out": _shuffled(held, "held_out", seed)}


def _shuffled(games: Sequence[Game], split: Split, seed: int) -> tuple[Game, ...]:
    order = sorted(games)
    random.Random(f"alfworld/{split}/{seed}").shuffle(order)
    return tuple(order)


def _rank(game: Game) -> float:
    """From 0 to 1, the same wherever the data lies."""
    name = "/".join(Path(game.path).parts[-3:-1])
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "big") / 2**56
