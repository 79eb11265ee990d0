"""Does a data folder play? Every game's walkthrough is played, which has to win."""

from __future__ import annotations

import logging
import time
from collections import Counter
from pathlib import Path
from typing import Literal, TypedDict

from envs.alfworld import package
from envs.alfworld.engine import Engine, engines, read_game
from envs.alfworld.expert import play_expert
from envs.alfworld.games import KINDS, Game, data_folder
from envs.alfworld.listing import list_games

log = logging.getLogger(__name__)

By = Literal["walkthrough", "expert"]


class GoldReport(TypedDict):
    """What was played."""

    games: int  # tried
    won: int  # of them
    steps: int  # commands given
    steps_per_s: float  # in one process, starts of games included
    accelerated: bool  # the accelerated engine agreed with the stock one and was used
    kinds: dict[str, int]  # games tried, by kind of task
    skipped: dict[str, int]  # games of the folder that are no tasks, by reason
    lost: list[str]  # game files that were not won


def replay_gold(data: str | Path, *, games: int = 0, by: By = "walkthrough", accelerate: bool = True) -> GoldReport:
    """Play the walkthroughs of a folder's games.

    games: only the first so many, by path; 0: all
    by: "walkthrough" plays the one in the game file, and upstream's scripted expert where there is none; "expert"
        plays the expert everywhere, which fails on some games that can be won

    Raises `ConfigError`, also for options that make no sense, and `EnvironmentFailed`.
    """
    package.require()
    found = list_games(data_folder(str(data)))
    chosen = found.games[:games] if games else found.games
    kept = engines(accelerate=accelerate, proof=chosen[0].path)
    steps, lost = 0, []
    began = time.perf_counter()
    for game in chosen:
        walkthrough = [] if by == "expert" else read_game(game.path).get("walkthrough") or []
        if walkthrough:
            engine = kept.take(game.path)
            taken, won = play(engine, walkthrough)
            kept.give(engine)
        else:
            commands, won = play_expert(Path(game.path), fast=kept.fast)
            taken = len(commands)
        steps += taken
        if not won:
            lost.append(game.path)
    seconds = time.perf_counter() - began
    return GoldReport(
        games=len(chosen),
        won=len(chosen) - len(lost),
        steps=steps,
        steps_per_s=round(steps / seconds, 1),
        accelerated=kept.fast,
        kinds=_by_kind(chosen),
        skipped=found.skipped,
        lost=lost,
    )


def play(engine: Engine, commands: list[str]) -> tuple[int, bool]:
    """Steps taken of a walkthrough through the loaded game, and whether they won."""
    engine.reset()
    for number, command in enumerate(commands, start=1):
        if engine.step(command).won:
            return number, True
    return len(commands), False


def _by_kind(games: tuple[Game, ...]) -> dict[str, int]:
    count = Counter(game.kind for game in games)
    return {kind: count[kind] for kind in KINDS if count[kind]}
