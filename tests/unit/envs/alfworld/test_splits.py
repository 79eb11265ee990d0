"""Who is trained on and who is held out, and in which order."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.alfworld.games import KINDS, Game
from envs.alfworld.splits import HeldOut, split_games

FOLDERS = ("train", "valid_seen", "valid_unseen")


def games(count: int, folder: str = "", kind: str = KINDS[0]) -> list[Game]:
    return [
        Game(path=f"/data/{folder}/{kind}/trial_{n:04}/game.tw-pddl", folder=folder, kind=kind) for n in range(count)
    ]


ALL = [game for folder in FOLDERS for kind in KINDS for game in games(5, folder, kind)]


@pytest.mark.parametrize(
    ("held_out", "folders"),
    [("valid_seen", {"valid_seen"}), ("valid_unseen", {"valid_unseen"}), ("both", {"valid_seen", "valid_unseen"})],
)
def test_upstreams_folders_are_the_splits(held_out: HeldOut, folders: set[str]) -> None:
    split = split_games(ALL, kinds=KINDS, held_out=held_out, seed=0)
    assert set(split["train"]) == {game for game in ALL if game.folder == "train"}
    assert set(split["held_out"]) == {game for game in ALL if game.folder in folders}


def test_only_the_kinds_asked_for() -> None:
    split = split_games(ALL, kinds=KINDS[2:4], held_out="both", seed=0)
    assert {game.kind for some in split.values() for game in some} == set(KINDS[2:4])
    assert (len(split["train"]), len(split["held_out"])) == (10, 20)


def test_the_seed_decides_the_order_and_nothing_else_does() -> None:
    one, same, other = (
        split_games(order, kinds=KINDS, held_out="valid_seen", seed=seed)
        for order, seed in ((ALL, 1), (ALL[::-1], 1), (ALL, 2))
    )
    assert one == same
    assert one["train"] != other["train"]
    assert sorted(one["train"]) == sorted(other["train"])


@settings(deadline=None, max_examples=50)
@given(count=st.integers(0, 300), seed=st.integers(0, 10))
def test_a_folder_without_split_folders_is_divided(count: int, seed: int) -> None:
    some = games(count)
    split = split_games(some, kinds=KINDS, held_out="valid_seen", seed=seed)
    assert sorted((*split["train"], *split["held_out"])) == sorted(some)
    assert bool(split["train"]) == (count > 0)
    assert bool(split["held_out"]) == (count > 1)


def test_about_one_in_ten_is_held_out_wherever_the_data_lies() -> None:
    some = games(2000)
    moved = [Game(path=f"/elsewhere{game.path}", folder="", kind=game.kind) for game in some]
    here, there = (split_games(data, kinds=KINDS, held_out="both", seed=0)["held_out"] for data in (some, moved))
    assert 150 < len(here) < 250
    assert [f"/elsewhere{game.path}" for game in sorted(here)] == [game.path for game in sorted(there)]
