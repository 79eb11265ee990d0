"""Upstream's game interpreter with its repeated work done once. Same answers, about twenty times as fast.

A stock step parses templates and conditions and deep-copies entities dozens of times; a stock start of a game
translates its PDDL four times. Here templates and conditions are compiled (`grammar`), translations kept, and facts
listed once a step. It leans on private parts of the packages: `package.unknown_release` says whether they are the
known ones, and `agreement.difference` compares the answers before it is used.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import fast_downward
import mementos.core
from textworld.envs import PddlEnv
from textworld.envs.pddl import logic as pddl_logic
from textworld.envs.pddl import textgen

from envs.alfworld.grammar import CompiledGrammar, parse_symbols

_TRANSLATIONS = 16  # kept; one takes about 1 MiB, and a group begins all its episodes on the same one
_GRAMMARS = 64
_PROPOSITIONS = 100_000  # upstream keeps every one of every game for ever; this many take about 30 MiB

_stock_logic, _stock_state = pddl_logic.GameLogic, pddl_logic.PddlState
_stock_translate, _stock_parse = fast_downward.pddl2sas, textgen._parse_and_convert


class FastState(pddl_logic.PddlState):  # type: ignore[misc]
    """A game's state, which lists and sorts its facts once between two changes."""

    _listed: list[Any] | None = None

    def __init__(self, *arguments: Any) -> None:
        self._sorted: dict[Any, list[Any]] = {}  # facts of a signature
        super().__init__(*arguments)

    @property
    def facts(self) -> list[Any]:
        """All facts, in upstream's order."""
        if self._listed is None:
            self._listed = list(super().facts)
        return self._listed

    def facts_with_signature(self, sig: Any) -> list[Any]:
        """In the order into which upstream sorts them at each use, which takes no time for what is sorted already."""
        found = self._sorted.get(sig)
        if found is None:
            found = self._sorted[sig] = sorted(super().facts_with_signature(sig))
        return found

    def add_fact(self, prop: Any) -> None:
        """Make a fact true."""
        self._forget(prop)
        super().add_fact(prop)

    def remove_fact(self, prop: Any) -> None:
        """Make a fact false."""
        self._forget(prop)
        super().remove_fact(prop)

    def _forget(self, prop: Any) -> None:
        self._listed = None
        self._sorted.pop(prop.signature, None)


class FastPddlEnv(PddlEnv):  # type: ignore[misc]
    """`PddlEnv` on kept translations and compiled grammars. Its plans (`policy_commands`) are not to be asked for.

    `load` raises `UnknownGrammar` for a game whose texts are not known how to tell.
    """

    def load(self, filename_or_data: str | Mapping[str, Any]) -> None:
        """Read a game."""
        if len(mementos.core._memento_cache) > _PROPOSITIONS:
            mementos.core._memento_cache.clear()  # they compare by value, so new equal ones are as good
        with _swapped(), _uncollected():
            super().load(filename_or_data)

    def reset(self) -> Any:
        """Begin the game."""
        with _swapped(), _uncollected():
            return super().reset()


@contextlib.contextmanager
def _swapped() -> Iterator[None]:
    """While a game is loaded or begun, upstream's code finds our parts under its own names."""
    pddl_logic.GameLogic, pddl_logic.PddlState = _logic, FastState
    fast_downward.pddl2sas = _translate
    try:
        yield
    finally:
        pddl_logic.GameLogic, pddl_logic.PddlState = _stock_logic, _stock_state
        fast_downward.pddl2sas = _stock_translate


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """A translation makes half a million objects and no garbage in cycles; looking for it takes a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _translate(domain: str, problem: str, verbose: bool = False, optimize: bool = False) -> tuple[Any, str]:
    """The optimised translation serves plans alone, so the plain one stands in for it: it is only kept, not read."""
    return _translated(domain, problem)


@lru_cache(_TRANSLATIONS)
def _translated(domain: str, problem: str) -> tuple[Any, str]:
    task, sas = _stock_translate(domain, problem)
    return task, sas


@lru_cache(_GRAMMARS)
def _logic(domain: str, grammar: str) -> Any:
    """The logic of a game; its templates are parsed once for all games that share them."""
    textgen._parse_and_convert = _parse
    try:
        made = _stock_logic(domain, grammar)
    finally:
        textgen._parse_and_convert = _stock_parse
    made.grammar = CompiledGrammar(made.grammar._rules)
    return made


def _parse(text: str, rule_name: str) -> Any:
    return parse_symbols(text)
