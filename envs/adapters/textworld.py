"""TextWorld games from a folder: compiled ones (.z8), and .json ones, which are faster and told from their facts."""

from __future__ import annotations

import hashlib
import importlib.util
import re
from functools import cache
from pathlib import Path
from typing import Any

from envs.adapters.textworld_telling import room_told
from stream_rl.errors import ConfigError, EnvironmentFailed
from stream_rl.types import Observation, Split, StepResult, Task

KINDS = (".z8", ".json")
_HELD_OUT_OF = 10  # every tenth game by hash, where the folder has no folders of its own for the splits
_WANTED = ("admissible_commands", "won", "lost", "score", "max_score", "objective")
_STATUS_LINE = re.compile(r"\s*>\s+-= .*\Z", re.DOTALL)  # prompt, room and score, which compiled games print last
NOTHING_HAPPENS = "Nothing happens."
_FOLDERS: dict[Split, str] = {"train": "train", "held_out": "held_out"}


class TextWorld:
    """One game at a time, whole groups on one game: the index chooses it.

    games: folder. With subfolders `train` and `held_out` these are the splits; otherwise about one game in ten, by the
        hash of its file's name, is held out. A game that lies there in both forms is played compiled; TextWorld reads
        what is admissible from the .json beside it.
    max_turns: the world ends the episode after this many; 0: never

    Reward is the gain in score over the game's highest, so that a won game sums to 1.
    """

    def __init__(self, *, games: str, max_turns: int = 0) -> None:
        if importlib.util.find_spec("textworld") is None:
            raise ConfigError(
                "environments.options",
                "the package textworld is not installed here; install it, or serve the games from a venv that has it "
                "(`stream-rl envs serve textworld`) and use the world remote.",
            )
        if max_turns < 0:
            raise ConfigError("environments.options", f"max_turns: {max_turns} is negative; 0 is no limit.")
        self._games = find_games(Path(games))
        self._max_turns = max_turns
        self._game: Any = None
        self._wordless = False  # the game lies there as .json only
        self._score = 0.0
        self._turns = 0
        self._before: tuple[str, ...] = ()

    def num_tasks(self, split: Split) -> int:
        """Games of the split."""
        return len(self._games[split])

    def reset(self, task: Task, seed: int) -> Observation:
        """Begin an episode; nothing in a game is random, so `seed` changes nothing."""
        import textworld

        self.close()
        games = self._games[task.split]
        game = games[task.index % len(games)]
        self._wordless = game.suffix == ".json"
        wanted = dict.fromkeys((*_WANTED, "facts" if self._wordless else "description"), True)
        self._game = textworld.start(str(game), textworld.EnvInfos(**wanted))
        state = self._game.reset()
        self._score = 0.0
        self._turns = 0
        self._before = tuple(state.admissible_commands or ())
        seen = room_told(state.facts) if self._wordless else str(state.description or state.feedback or "")
        text = f"{state.objective or ''}\n\n{seen.strip()}".strip()
        return Observation(text=text, admissible=self._before)

    def step(self, action: str) -> StepResult:
        """Act. A command that is not among the admissible ones is given to the game, and counts as invalid."""
        if self._game is None:
            raise EnvironmentFailed("textworld: no episode has begun; call reset first")
        command = " ".join(action.split())
        state, score, over = self._game.step(command)
        self._turns += 1
        known = not self._before or command in self._before  # a game without its .json cannot be asked
        self._before = tuple(state.admissible_commands or ())
        most = float(state.max_score or 1)
        gain, self._score = (float(score or 0) - self._score) / most, float(score or 0)
        done = bool(over) or self._turns == self._max_turns
        return StepResult(
            text=self._told(state, known),
            reward=gain,
            done=done,
            success=bool(state.won),
            score=min(1.0, max(0.0, self._score / most)),
            valid=known,
            admissible=() if done else self._before,
        )

    def close(self) -> None:
        """End the game's interpreter."""
        if self._game is not None:
            self._game.close()
            self._game = None

    def _told(self, state: Any, known: bool) -> str:
        if not self._wordless:
            return _STATUS_LINE.sub("", str(state.feedback or "")).strip()
        if state.won or state.lost:
            return "You have won." if state.won else "You have lost."
        return room_told(state.facts) if known else NOTHING_HAPPENS


@cache
def find_games(folder: Path) -> dict[Split, tuple[Path, ...]]:
    """Games of each split, by name. Raises `ConfigError` where a split has none."""
    if all((folder / name).is_dir() for name in _FOLDERS.values()):
        games = {split: tuple(_games_in(folder / name)) for split, name in _FOLDERS.items()}
    else:
        found = _games_in(folder)
        held = {game for game in found if _held_out(game)} or set(found[:1])
        games = {
            "train": tuple(game for game in found if game not in held),
            "held_out": tuple(game for game in found if game in held),
        }
    for split, some in games.items():
        if not some:
            raise ConfigError(
                "environments.options", f"games: {folder} has no {split} game; expected files {', '.join(KINDS)}."
            )
    return games


def _games_in(folder: Path) -> list[Path]:
    best: dict[Path, Path] = {}
    for kind in reversed(KINDS):
        for game in sorted(folder.glob(f"**/*{kind}")):
            best[game.with_suffix("")] = game
    return [best[stem] for stem in sorted(best)]


def _held_out(game: Path) -> bool:
    return int.from_bytes(hashlib.sha256(game.stem.encode()).digest()[:8], "big") % _HELD_OUT_OF == 0
