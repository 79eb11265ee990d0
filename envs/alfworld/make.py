"""Games from what the upstream package ships (domain, grammar, room layouts), each won before it is written.

They are full-size games in upstream's folders and formats, over random rooms instead of recorded ones: for trying
things out without a download. Published numbers need upstream's own games.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import msgspec

from envs.alfworld import package
from envs.alfworld.agreement import can_accelerate
from envs.alfworld.engine import Engine
from envs.alfworld.games import DATASET, GAME_FILE, KINDS, TRIAL_FILE, Kind
from stream_rl.errors import EnvironmentFailed, UsageError

PROBLEM_FILE = "initial_state.pddl"

_ROUND = ("train", "valid_seen", "valid_unseen", "train", "train", "train")  # where groups of six kinds go, in turn
_UNSEEN_EVERY = 5  # every fifth floor plan is met in valid_unseen and nowhere else
_DRAWS = 100  # of one game, until it can be solved
_UNTOLD = "UNKNOWN GOAL"  # stands for the goal in the grammar as it is shipped


class MakeReport(TypedDict):
    """What was written."""

    folder: str  # to be given as `data`
    games: int  # in all splits
    splits: dict[str, int]  # games of each
    kinds: dict[str, int]  # games of each
    steps_mean: float  # commands of a walkthrough
    discarded: int  # draws that had no task or were not solved


class Made(NamedTuple):
    """One game, ready to be written."""

    folder: str  # "pick_and_place_simple-Mug-None-Desk-305/trial_G..."
    data: dict[str, Any]  # of the game file
    trial: dict[str, Any]  # of the trial file


def make_games(folder: str | Path, *, games: int = 60, seed: int = 0) -> MakeReport:
    """Write `games` games, of all six kinds in turn, below `folder` in upstream's layout: all of them or none.

    Raises `ConfigError` where the packages are missing, `UsageError` for a folder that has games already, and
    `EnvironmentFailed` when the package's rooms give no game.
    """
    package.require()
    base = Path(folder) / DATASET
    if base.exists():
        raise UsageError(f"{base} is there already; name a folder without games")
    base.parent.mkdir(parents=True, exist_ok=True)
    maker = _Maker(seed)
    splits, kinds, steps = Counter[str](), Counter[str](), 0
    with tempfile.TemporaryDirectory(prefix=".making-", dir=base.parent) as beside:
        building = Path(beside) / DATASET
        for number, (split, kind) in enumerate(plan(games)):
            made = maker.make(number, split, kind)
            write(building / split, made)
            splits[split] += 1
            kinds[kind] += 1
            steps += len(made.data["walkthrough"])
        building.rename(base)
    return MakeReport(
        folder=str(folder),
        games=games,
        splits=dict(splits),
        kinds=dict(kinds),
        steps_mean=round(steps / games, 1),
        discarded=maker.discarded,
    )


def plan(games: int) -> Iterator[tuple[str, Kind]]:
    """Split and kind of each game.

    >>> [split for split, _ in plan(13)][::6]
    ['train', 'valid_seen', 'valid_unseen']
    """
    for number in range(games):
        yield _ROUND[number // len(KINDS) % len(_ROUND)], KINDS[number % len(KINDS)]


def write(split: Path, made: Made) -> None:
    """The three files of a game."""
    folder = split / made.folder
    folder.mkdir(parents=True)
    (folder / PROBLEM_FILE).write_text(made.data["pddl_problem"], encoding="utf-8")
    (folder / TRIAL_FILE).write_bytes(msgspec.json.encode(made.trial))
    (folder / GAME_FILE).write_bytes(msgspec.json.encode(made.data))


class _Maker:
    """Draws games and plays them."""

    def __init__(self, seed: int) -> None:
        self.discarded = 0
        self._seed = seed
        self._names: set[str] = set()
        self._engine: Engine | None = None  # made with the first game, over which its acceleration is proved

    def make(self, number: int, split: str, kind: Kind) -> Made:
        """A game that was won. Raises `EnvironmentFailed`."""
        for draw in range(_DRAWS):
            made = self._draw(kind, split, random.Random(f"alfworld/{self._seed}/{number}/{draw}"))
            if made is not None and made.folder not in self._names:
                self._names.add(made.folder)
                return made
            self.discarded += 1
        raise EnvironmentFailed(f"alfworld: {_DRAWS} draws gave no {kind} game for {split}")

    def _draw(self, kind: Kind, split: str, rng: random.Random) -> Made | None:
        import alfworld.gen.constants as upstream
        from alfworld.info import ALFRED_PDDL_PATH, ALFRED_TWL2_PATH

        from envs.alfworld import problem, rooms, setting

        room = rng.choice(sorted(upstream.GOALS_VALID[kind] & set(rooms.ROOMS)))
        plans = [plan for plan in rooms.ROOMS[room] if (plan % _UNSEEN_EVERY == 0) == (split == "valid_unseen")]
        try:
            drawn = setting.draw_setting(kind, rooms.read_room(room, rng.choice(plans), rng), rng)
        except setting.Infeasible:
            return None
        name = f"trial_G{rng.getrandbits(48):012x}"
        told = problem.task_description(drawn, rng)
        data: dict[str, Any] = {
            "pddl_domain": Path(ALFRED_PDDL_PATH).read_text(encoding="utf-8"),
            "grammar": Path(ALFRED_TWL2_PATH).read_text(encoding="utf-8").replace(_UNTOLD, told),
            "pddl_problem": problem.pddl_problem(drawn, name),
        }
        walkthrough = self._win(data, problem.solution(drawn))
        if walkthrough is None:
            return None
        task = f"{kind}-{drawn.target}-None-{drawn.parent or drawn.lamp}-{drawn.room.number}"
        return Made(
            folder=f"{task}/{name}",
            data={**data, "solvable": True, "walkthrough": walkthrough},
            trial=problem.trial(drawn, name, told),
        )

    def _win(self, data: dict[str, Any], moves: list[Any]) -> list[str] | None:
        """The commands that won; None when they did not, or one of them was not possible."""
        from envs.alfworld.problem import commands

        if self._engine is None:
            self._engine = Engine(fast=can_accelerate(data))
        self._engine.load(data)
        seen = self._engine.reset()
        taken: list[str] = []
        for command in commands(moves, self._engine.names()):
            if command not in seen.commands:
                return None
            seen = self._engine.step(command)
            taken.append(command)
            if seen.won:
                return taken
        return None
