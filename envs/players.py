"""Players that need no model: at random, or scripted by the world's author."""

from __future__ import annotations

import importlib
import random
import re
from collections.abc import Callable, Sequence
from typing import Protocol

from envs import registry
from stream_rl.errors import UsageError

_WORD = re.compile(r"[a-z]+(?: \d+)?", re.IGNORECASE)
_LONGEST_PHRASE = 4


class Player(Protocol):
    """Plays one episode: `act`, tell the world, `observe` its answer, and again."""

    def act(self, admissible: Sequence[str]) -> str:
        """The next action, given what the world says it would accept; nothing if it does not say."""
        ...

    def observe(self, action: str, answer: str) -> None:
        """Take in the world's answer to the last action."""
        ...


class Script(Protocol):
    """A scripted player of one world. Its class is made with the first observation and a source of chance."""

    def act(self) -> str:
        """The next action."""
        ...

    def observe(self, action: str, answer: str) -> None:
        """Take in the world's answer to the last action."""
        ...


MakePlayer = Callable[[str, random.Random], Player]  # (first observation, chance)


class RandomPlayer:
    """Draws from the admissible actions; where the world names none, strings words together that it has read."""

    def __init__(self, first_observation: str, rng: random.Random) -> None:
        self._rng = rng
        self._words = sorted(set(_WORD.findall(first_observation))) or ["look"]

    def act(self, admissible: Sequence[str]) -> str:
        """An action, uniformly."""
        if admissible:
            return self._rng.choice(admissible)
        return " ".join(self._rng.choices(self._words, k=self._rng.randint(1, _LONGEST_PHRASE)))

    def observe(self, action: str, answer: str) -> None:
        """More words."""
        self._words = sorted({*self._words, *_WORD.findall(answer)})[:1000]


class ScriptedPlayer:
    """A script as a `Player`: it decides by what it reads, whatever is admissible."""

    def __init__(self, script: Script) -> None:
        self._script = script

    def act(self, admissible: Sequence[str]) -> str:
        """The script's action."""
        return self._script.act()

    def observe(self, action: str, answer: str) -> None:
        """Tell the script."""
        self._script.observe(action, answer)


def scripted(world: str) -> MakePlayer:
    """The scripted player that the registry names for a world. Raises `UsageError` where there is none."""
    known = registry.find(world)
    if known is None or not known.player:
        able = ", ".join(other.name for other in registry.known() if other.player)
        raise UsageError(f"{world} has no scripted player (worlds that have one: {able}); use --player random")
    module, _, attribute = known.player.partition(":")
    script = getattr(importlib.import_module(module), attribute)

    def make(first_observation: str, rng: random.Random) -> Player:
        return ScriptedPlayer(script(first_observation, rng))

    return make
