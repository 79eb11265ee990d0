"""One of upstream's game interpreters, and the ones a process keeps: each holds a library of about 5 MiB for good."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from stream_rl.errors import EnvironmentFailed

log = logging.getLogger(__name__)

GameData = Mapping[str, Any]  # what a game file holds


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A game's answer."""

    text: str  # upstream's feedback
    commands: tuple[str, ...]  # admissible ones, sorted
    won: bool  # the goal holds


class Engine:
    """Plays one game at a time."""

    def __init__(self, *, fast: bool) -> None:
        self.path = ""  # of the game that is loaded
        self.intact = True  # False once a call into upstream's code has not come back
        self._fast = fast
        self._games: dict[bool, Any] = {}  # interpreters: accelerated, stock
        self._game: Any = None

    @property
    def accelerated(self) -> bool:
        """Whether the loaded game is played by the accelerated interpreter."""
        return self._game is not None and self._game is self._games.get(True)

    def load(self, data: GameData, path: str = "") -> None:
        """Read a game. Raises whatever upstream raises for one that it cannot read."""
        self.path = ""
        with self._call():
            self._game = self._load(data)
        self.path = path

    def reset(self) -> Seen:
        """Begin the loaded game."""
        with self._call():
            return _seen(self._game.reset())

    def step(self, command: str) -> Seen:
        """Give a command."""
        with self._call():
            return _seen(self._game.step(command)[0])

    def names(self) -> dict[str, str]:
        """What the loaded game calls the entities of its PDDL problem, whose identifiers are in lower case here."""
        return {info.id: info.name.strip() for info in self._game._entity_infos.values()}

    def _load(self, data: GameData) -> Any:
        if self._fast:
            from envs.alfworld.grammar import UnknownGrammar

            try:
                game = self._interpreter(fast=True)
                game.load(data)
                return game
            except UnknownGrammar as error:
                log.warning("alfworld: a game is played without acceleration: %s", error)
        game = self._interpreter(fast=False)
        game.load(data)
        return game

    def _interpreter(self, *, fast: bool) -> Any:
        if fast not in self._games:
            from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
            from textworld import EnvInfos
            from textworld.envs import PddlEnv

            make = PddlEnv
            if fast:
                from envs.alfworld.fast import FastPddlEnv

                make = FastPddlEnv
            self._games[fast] = AlfredDemangler(make(EnvInfos(won=True, admissible_commands=True)), shuffle=False)
        return self._games[fast]

    @contextlib.contextmanager
    def _call(self) -> Iterator[None]:
        """Upstream's translator overwrites `sys.argv`, and what it was is put back."""
        arguments, self.intact = sys.argv, False
        try:
            yield
        finally:
            sys.argv = arguments
        self.intact = True


class Engines:
    """The engines of a process. Use it from one thread: upstream's translator swaps `sys.stdout` while it works."""

    def __init__(self, *, fast: bool) -> None:
        self.fast = fast  # accelerated
        self._idle: list[Engine] = []
        self._thread = threading.get_ident()

    def take(self, path: str) -> Engine:
        """An engine with that game loaded: one that has it already, or any that is idle, or a new one.

        Raises `EnvironmentFailed` for a game file that cannot be read or loaded.
        """
        if threading.get_ident() != self._thread:
            raise EnvironmentFailed("alfworld: upstream's code works in one thread of a process; use worker processes")
        for engine in self._idle:
            if engine.path == path:
                self._idle.remove(engine)
                return engine
        data = read_game(path)
        engine = self._idle.pop(0) if self._idle else Engine(fast=self.fast)
        try:
            engine.load(data, path)
        except (Exception, SystemExit) as error:  # the translator ends the process over PDDL that it cannot parse
            engine.intact = True  # nothing of a game has begun in it
            self._idle.append(engine)
            raise EnvironmentFailed(f"alfworld: {path} cannot be loaded: {type(error).__name__}: {error}") from error
        return engine

    def give(self, engine: Engine) -> None:
        """Take an engine back, unless something went wrong in it."""
        if engine.intact:
            self._idle.append(engine)


def read_game(path: str) -> dict[str, Any]:
    """What a game file holds. Raises `EnvironmentFailed`."""
    try:
        data = msgspec.json.decode(Path(path).read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError) as error:
        raise EnvironmentFailed(f"alfworld: {path} cannot be read: {error}") from error
    return data


@cache
def engines(*, accelerate: bool, proof: str) -> Engines:
    """The engines of this process, made when they are first asked for.

    Accelerated ones are first compared with stock ones over some steps of the game file `proof`; where the answers
    differ, or the packages are not known ones, stock ones are used with a warning. Raises `EnvironmentFailed`.
    """
    from envs.alfworld.agreement import can_accelerate

    return Engines(fast=accelerate and can_accelerate(read_game(proof)))


def _seen(state: Any) -> Seen:
    return Seen(text=state.feedback, commands=tuple(state["admissible_commands"]), won=bool(state["won"]))
