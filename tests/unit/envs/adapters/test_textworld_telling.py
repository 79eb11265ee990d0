"""What the player of a game without words is told."""

from __future__ import annotations

import msgspec

from envs.adapters.textworld_telling import room_told


class Thing(msgspec.Struct):
    name: str
    type: str


class Said(msgspec.Struct):
    name: str
    arguments: tuple[Thing, ...]


KINDS = {"P": "P", "I": "I", "kitchen": "r", "hall": "r", "oak door": "d"}


def facts(*lines: str) -> list[Said]:
    split = [line.split(":") for line in lines]
    return [Said(name, tuple(Thing(n, KINDS.get(n, "o")) for n in rest.split(","))) for name, rest in split]


def test_only_what_is_in_sight_is_told() -> None:
    told = room_told(
        facts(
            "at:P,kitchen",
            "at:table,kitchen",
            "at:fridge,kitchen",
            "at:safe,kitchen",
            "closed:safe",
            "open:fridge",
            "on:plate,table",
            "in:milk,fridge",
            "in:gold,safe",
            "in:key,I",
            "at:coat,hall",
            "north_of:hall,kitchen",
            "south_of:kitchen,hall",
            "link:kitchen,oak door,hall",
            "locked:oak door",
        )
    )
    assert told.splitlines() == [
        "You are in the kitchen.",
        "You see a fridge (open), a safe (closed), a table.",
        "In the fridge: a milk.",
        "On the table: a plate.",
        "Ways out: north to the hall through a oak door (locked).",
        "You carry a key.",
    ]


def test_an_empty_room() -> None:
    assert room_told(facts("at:P,hall")) == "You are in the hall.\nYou carry nothing."
