"""ALFWorld as an environment of the stream."""

from __future__ import annotations

import logging
from typing import Annotated

import msgspec

from envs.alfworld import package
from envs.alfworld.engine import Engine, Engines, Seen, engines
from envs.alfworld.games import KINDS, Game, Kind, data_folder
from envs.alfworld.language import NOTHING_HAPPENS, as_command, parse_opening
from envs.alfworld.listing import list_games
from envs.alfworld.splits import HeldOut, split_games
from stream_rl.errors import ConfigError, EnvironmentFailed
from stream_rl.types import Observation, Split, StepResult, Task

log = logging.getLogger(__name__)


class AlfWorldOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[environments.options]` of this world."""

    data: str = ""  # folder in upstream's layout; empty: $ALFWORLD_DATA
    kinds: Annotated[tuple[Kind, ...], msgspec.Meta(min_length=1)] = KINDS  # of tasks to play
    held_out: HeldOut = "valid_seen"  # which of upstream's folders evaluation uses
    seed: int = 0  # of the order in which a task's index counts the games
    max_turns: Annotated[int, msgspec.Meta(ge=0)] = 50  # the world ends the episode after this many; 0: never
    admissible: bool = True  # fill `admissible` of observations and results
    accelerate: bool = True  # false: upstream's code as it is


class AlfWorld:
    """One game, whole groups on the same: split and index choose it. Nothing in a game is random.

    The keywords are those of `AlfWorldOptions`; values it cannot use raise `ConfigError`, as do missing packages and
    data. Reward, score and success are 1 when the game says that its goal holds, which ends the episode.
    """

    def __init__(
        self,
        *,
        data: str = "",
        kinds: tuple[str, ...] = KINDS,
        held_out: str = "valid_seen",
        seed: int = 0,
        max_turns: int = 50,
        admissible: bool = True,
        accelerate: bool = True,
    ) -> None:
        given = {
            "data": data,
            "kinds": kinds,
            "held_out": held_out,
            "seed": seed,
            "max_turns": max_turns,
            "admissible": admissible,
            "accelerate": accelerate,
        }
        try:
            self.options = msgspec.convert(given, AlfWorldOptions)
        except msgspec.ValidationError as error:
            raise ConfigError("environments.options", f"alfworld: {given} cannot be used: {error}.") from None
        package.require()
        found = list_games(data_folder(data))
        self._games = split_games(
            found.games, kinds=self.options.kinds, held_out=self.options.held_out, seed=self.options.seed
        )
        self._skipped = found.skipped
        if not any(self._games.values()):
            raise ConfigError(
                "environments.options",
                f"alfworld: none of the {len(found.games)} games is of kinds {', '.join(self.options.kinds)} and in "
                f"train or {self.options.held_out}.",
            )
        self._engine: Engine | None = None
        self._commands: tuple[str, ...] = ()
        self._turns = 0
        self._done = False

    def prepare(self) -> int:
        """Say what there is to play, and prove the acceleration. Any number of episodes may be open."""
        left_out = ", ".join(f"{count} {reason}" for reason, count in self._skipped.items())
        log.log(
            logging.WARNING if left_out else logging.INFO,
            "alfworld: %d train and %d held-out games; left out: %s",
            *(len(games) for games in self._games.values()),
            left_out or "none",
        )
        self._engines()
        return 0

    def num_tasks(self, split: Split) -> int:
        """Games of the split; higher indices begin again."""
        return len(self._games[split])

    def game_of(self, task: Task) -> Game:
        """The game of a task. Raises `EnvironmentFailed` for a split without games."""
        games = self._games[task.split]
        if not games:
            raise EnvironmentFailed(f"alfworld: the data has no {task.split} game (held_out={self.options.held_out})")
        return games[task.index % len(games)]

    def reset(self, task: Task, seed: int) -> Observation:
        """Begin an episode; `seed` changes nothing. Raises `EnvironmentFailed` for a game that cannot be read."""
        self.close()
        game = self.game_of(task)
        self._engine = self._engines().take(game.path)
        seen = self._engine.reset()
        try:
            opening = parse_opening(seen.text)
        except ValueError as error:
            raise EnvironmentFailed(f"alfworld: {game.path}: {error}") from None
        self._turns = 0
        self._done = False
        self._commands = seen.commands
        return Observation(text=opening.text, admissible=self._offered())

    def step(self, action: str) -> StepResult:
        """Act. Whatever is not among the admissible commands changes nothing and is `valid=False`.

        Raises `EnvironmentFailed` when no episode has begun.
        """
        if self._engine is None:
            raise EnvironmentFailed("alfworld: no episode has begun; call reset first")
        command = as_command(action)
        if self._done or command not in self._commands:
            return self._result(Seen(text=NOTHING_HAPPENS, commands=self._commands, won=False), valid=False)
        return self._result(self._engine.step(command), valid=True)

    def close(self) -> None:
        """Give the engine back, for the next episode of this process."""
        engine, self._engine = self._engine, None
        if engine is not None:
            self._engines().give(engine)

    def _engines(self) -> Engines:
        some = self._games["train"] or self._games["held_out"]
        return engines(accelerate=self.options.accelerate, proof=some[0].path)

    def _result(self, seen: Seen, *, valid: bool) -> StepResult:
        if not self._done:
            self._turns += 1
            self._done = seen.won or self._turns == self.options.max_turns
        self._commands = seen.commands
        return StepResult(
            text=seen.text,
            reward=float(seen.won),
            done=self._done,
            success=seen.won,
            score=float(seen.won),
            valid=valid,
            admissible=() if self._done else self._offered(),
        )

    def _offered(self) -> tuple[str, ...]:
        return self._commands if self.options.admissible else ()
