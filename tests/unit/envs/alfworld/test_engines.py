"""Which engine plays which game. What an engine answers is tested over the real package in tests/contract."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from envs.alfworld import engine as engine_module
from envs.alfworld.engine import Engines, GameData, read_game
from stream_rl.errors import EnvironmentFailed


class Twin:
    """An engine that remembers what it loaded, and ends the process over a game it cannot parse."""

    made: int = 0

    def __init__(self, *, fast: bool) -> None:
        Twin.made += 1
        self.path, self.intact, self.loads = "", True, 0

    def load(self, data: GameData, path: str) -> None:
        self.path, self.intact = "", False
        if "error" in data:
            raise SystemExit("Tokenizer error")
        self.path, self.intact, self.loads = path, True, self.loads + 1


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> Engines:
    monkeypatch.setattr(engine_module, "Engine", Twin)
    monkeypatch.setattr(Twin, "made", 0)
    return Engines(fast=True)


def game(folder: Path, name: str, content: str = "{}") -> str:
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return str(path)


def test_the_next_episode_of_a_game_finds_it_loaded(engines: Engines, tmp_path: Path) -> None:
    a, b = game(tmp_path, "a"), game(tmp_path, "b")
    first, second = engines.take(a), engines.take(b)
    assert first is not second
    engines.give(first)
    engines.give(second)
    assert engines.take(b) is second
    assert engines.take(a) is first
    assert (Twin.made, first.loads, second.loads) == (2, 1, 1)  # type: ignore[attr-defined]


def test_an_idle_engine_is_used_again_for_another_game(engines: Engines, tmp_path: Path) -> None:
    engines.give(engines.take(game(tmp_path, "a")))
    for number in range(20):
        engines.give(engines.take(game(tmp_path, f"b{number}")))
    assert Twin.made == 1


def test_as_many_engines_as_episodes_at_once(engines: Engines, tmp_path: Path) -> None:
    path = game(tmp_path, "a")
    taken = [engines.take(path) for _ in range(5)]
    assert Twin.made == len(taken) == 5


def test_an_engine_in_which_something_went_wrong_is_not_used_again(engines: Engines, tmp_path: Path) -> None:
    path = game(tmp_path, "a")
    broken = engines.take(path)
    broken.intact = False
    engines.give(broken)
    assert engines.take(path) is not broken


def test_a_game_that_cannot_be_loaded_costs_no_engine(engines: Engines, tmp_path: Path) -> None:
    bad = game(tmp_path, "bad", '{"error": 1}')
    for _ in range(3):
        with pytest.raises(EnvironmentFailed, match="bad cannot be loaded: SystemExit: Tokenizer error"):
            engines.take(bad)
    engines.take(game(tmp_path, "a"))
    assert Twin.made == 1


def test_other_threads_are_refused(engines: Engines, tmp_path: Path) -> None:
    path, raised = game(tmp_path, "a"), []

    def take() -> None:
        try:
            engines.take(path)
        except EnvironmentFailed as error:
            raised.append(str(error))

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    assert "one thread" in raised[0]


@pytest.mark.parametrize("content", ["", "{", "[]"])
def test_a_file_that_holds_no_game_fails_and_is_named(tmp_path: Path, content: str) -> None:
    with pytest.raises(EnvironmentFailed, match="torn cannot be read"):
        read_game(game(tmp_path, "torn", content))
    with pytest.raises(EnvironmentFailed, match="nothing cannot be read"):
        read_game(str(tmp_path / "nothing"))
