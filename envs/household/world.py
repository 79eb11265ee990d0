"""The household as an environment of the stream."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from envs.household.language import INSTRUCTIONS, NOTHING_HAPPENS, first_observation, parse_command
from envs.household.room import Room
from envs.household.tasks import LEVELS, generate_task
from stream_rl.errors import ConfigError, EnvironmentFailed
from stream_rl.types import Observation, StepResult, Task


class HouseholdOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[environments.options]` of this world."""

    level: Literal["easy", "standard", "hard"] = "standard"  # size of the room and how things are spread in it
    max_turns: Annotated[int, msgspec.Meta(ge=0)] = 0  # the world ends the episode after this many; 0: never
    admissible: bool = False  # fill `admissible` of observations and results
    instructions: bool = False  # explain the commands first and list what can be done, for general language models


class Household:
    """One room, one goal, reward 1 when the goal is reached and the episode with it.

    Index, split and level decide the room; nothing in it is random afterwards, so `seed` changes nothing. The
    keywords are those of `HouseholdOptions`; values it cannot use raise `ConfigError`.
    """

    def __init__(
        self, *, level: str = "standard", max_turns: int = 0, admissible: bool = False, instructions: bool = False
    ) -> None:
        given = {"level": level, "max_turns": max_turns, "admissible": admissible, "instructions": instructions}
        try:
            self.options = msgspec.convert(given, HouseholdOptions)
        except msgspec.ValidationError as error:
            raise ConfigError("environments.options", f"household: {given} cannot be used: {error}.") from None
        self._level = LEVELS[self.options.level]
        self._room: Room | None = None
        self._turns = 0
        self._done = False

    def reset(self, task: Task, seed: int) -> Observation:
        """Begin an episode."""
        room = self._room = Room(generate_task(task.split, task.index, self._level))
        self._turns = 0
        self._done = False
        text = first_observation(room.places, room.goal)
        if self.options.instructions:
            text = INSTRUCTIONS + text
        return Observation(text=self._told(text), admissible=self._offered())

    def step(self, action: str) -> StepResult:
        """Act. What is not understood, or cannot be done, is answered with "Nothing happens." and `valid=False`.

        Raises `EnvironmentFailed` when no episode has begun.
        """
        room = self._current()
        if self._done:
            return StepResult(text=NOTHING_HAPPENS, done=True, success=room.solved(), valid=False)
        answer = room.obey(parse_command(action))
        self._turns += 1
        solved = room.solved()
        self._done = solved or self._turns == self.options.max_turns
        return StepResult(
            text=answer if self._done else self._told(answer),
            reward=float(solved),
            done=self._done,
            success=solved,
            score=float(solved),
            valid=answer != NOTHING_HAPPENS,
            admissible=() if self._done else self._offered(),
        )

    def admissible(self) -> tuple[str, ...]:
        """Every command that would do something now. Raises `EnvironmentFailed` when no episode has begun."""
        return tuple(self._current().admissible())

    def close(self) -> None:
        """Forget the episode."""
        self._room = None

    def _current(self) -> Room:
        if self._room is None:
            raise EnvironmentFailed("household: no episode has begun; call reset first")
        return self._room

    def _offered(self) -> tuple[str, ...]:
        return self.admissible() if self.options.admissible else ()

    def _told(self, text: str) -> str:
        if not self.options.instructions:
            return text
        return f"{text}\nYou can: {'; '.join(self.admissible())}"
