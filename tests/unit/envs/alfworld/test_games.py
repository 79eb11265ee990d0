"""Which folders become games, what is left out and why, and what is read again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from envs.alfworld import listing
from envs.alfworld.games import DATASET, GAME_FILE, Facts, Stamp, data_folder, read_facts
from envs.alfworld.listing import find_games, list_games
from stream_rl.errors import ConfigError
from tests.unit.envs.alfworld.builders import add_game

HEAT = "pick_heat_then_place_in_recep"


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    return tmp_path / "memory" / "games.msgpack"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tmp_path / "data"


def test_what_is_left_out_is_counted_by_reason(base: Path, memory: Path) -> None:
    good = add_game(base, "train/pick_heat-Egg-None-Desk-1/trial_1", kind=HEAT)
    for number, changes in enumerate(
        [
            {"solvable": False},
            {"solvable": None},
            {"solvable": "missing"},
            {"solvable": "no file"},
            {"movable": "Plate"},
            {"sliced": True},
            {"kind": "pick_and_place_with_movable_recep"},
            {"kind": "juggle"},
        ]
    ):
        add_game(base, f"train/task-{number}/trial", **changes)  # type: ignore[arg-type]
    add_game(base, "train/pick_movable-Egg/trial")
    add_game(base, "train/pick-AppleSliced/trial", solvable="no file")
    (add_game(base, "train/broken/trial") / GAME_FILE).write_text("{", encoding="utf-8")
    (base / "train" / "empty").mkdir()

    found = find_games(base, memory)
    assert [(game.path, game.folder, game.kind) for game in found.games] == [(str(good / GAME_FILE), "train", HEAT)]
    assert found.skipped == {
        f"no {GAME_FILE}": 1,
        "movable receptacle": 2,
        "not marked solvable": 3,
        "other kind of task": 2,
        "sliced object": 2,
        "unreadable": 1,
    }


def test_only_upstreams_split_folders_are_searched_where_there_are_any(base: Path, memory: Path) -> None:
    add_game(base, "train/a/trial")
    add_game(base, "valid_unseen/a/trial")
    add_game(base, "tests_seen/a/trial")
    assert [game.folder for game in find_games(base, memory).games] == ["train", "valid_unseen"]


def test_a_folder_without_split_folders_is_searched_whole(base: Path, memory: Path) -> None:
    add_game(base, "a/trial_1")
    add_game(base, "a/trial_2")
    assert [game.folder for game in find_games(base, memory).games] == ["", ""]


def test_only_what_changed_is_read_again(base: Path, memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def counted(folder: Path, stamps: tuple[Stamp, Stamp]) -> Facts:
        read.append(folder.parent.name)
        return read_facts(folder, stamps)

    monkeypatch.setattr(listing, "read_facts", counted)
    places = {name: add_game(base, f"train/{name}/trial") for name in "abc"}
    first = find_games(base, memory)
    assert (sorted(read), len(first.games)) == (["a", "b", "c"], 3)

    read.clear()
    assert find_games(base, memory) == first
    assert read == []

    game = places["b"] / GAME_FILE
    game.write_text('{"solvable": false}', encoding="utf-8")
    os.utime(game, ns=(1, 1))
    (places["c"] / GAME_FILE).unlink()
    after = find_games(base, memory)
    assert read == ["b"]
    assert ([Path(game.path).parent for game in after.games], after.skipped) == (
        [places["a"]],
        {f"no {GAME_FILE}": 1, "not marked solvable": 1},
    )


@pytest.mark.parametrize("content", [b"", b"\x81\xa6format", b"not msgpack"])
def test_a_damaged_memory_is_said_and_written_anew(
    base: Path, memory: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    add_game(base, "train/a/trial")
    memory.parent.mkdir()
    memory.write_bytes(content)
    assert len(find_games(base, memory).games) == 1
    assert "the games are read again" in caplog.text
    caplog.clear()
    assert len(find_games(base, memory).games) == 1
    assert caplog.text == ""


def test_a_memory_that_cannot_be_written_is_said(base: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    add_game(base, "train/a/trial")
    (tmp_path / "file").touch()
    assert len(find_games(base, tmp_path / "file" / "games.msgpack").games) == 1
    assert "cannot be kept" in caplog.text


def test_a_folder_without_a_playable_game_is_refused(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAM_RL_CACHE", str(tmp_path / "cache"))
    add_game(base, "train/a/trial", solvable=False)
    with pytest.raises(ConfigError, match="1 not marked solvable"):
        list_games(base)


def test_where_the_data_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, named, home = tmp_path / "given", tmp_path / "named", tmp_path / "home"
    for folder in (given, named / DATASET, home / ".cache" / "alfworld"):
        folder.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("ALFWORLD_DATA", str(named))
    assert data_folder(str(given)) == given
    assert data_folder("") == named / DATASET
    monkeypatch.delenv("ALFWORLD_DATA")
    assert data_folder("") == home / ".cache" / "alfworld"
    with pytest.raises(ConfigError, match=r"no folder .*nowhere \(data\).*envs make alfworld"):
        data_folder(str(tmp_path / "nowhere"))
