"""Rooms as the upstream package ships them: which receptacles stand where, and which types of objects there are."""

from __future__ import annotations

import random
from functools import cache
from importlib import resources
from typing import NamedTuple

import alfworld.gen.constants as upstream
import msgspec

ROOMS = {
    "Kitchen": range(1, 31),
    "LivingRoom": range(201, 231),
    "Bedroom": range(301, 331),
    "Bathroom": range(401, 431),
}

STATIC = frozenset(upstream.RECEPTACLES) - frozenset(upstream.MOVABLE_RECEPTACLES)  # what nobody carries about
OPENABLE = frozenset(upstream.OPENABLE_CLASS_SET)

# Receptacles that rooms of a kind have, and for which the layouts tell no place.
_UNPLACED = {
    "Kitchen": ("GarbageCan", "CoffeeMachine", "Toaster", *["StoveBurner"] * 4),
    "Bathroom": ("GarbageCan", "Toilet", "HandTowelHolder", "TowelHolder", "ToiletPaperHanger"),
    "Bedroom": ("GarbageCan",),
    "LivingRoom": ("GarbageCan",),
}
_GRID = 4  # places are told on a grid of a quarter of a metre


class Receptacle(NamedTuple):
    """One thing that objects are in or on."""

    id: str  # "Cabinet|+00.68|+00.50|-02.20"
    type: str  # "Cabinet"
    place: str  # where the agent stands to reach it: "loc|x|z|quarter turns|angle of view"


class Room(NamedTuple):
    """One floor plan."""

    number: int  # of the floor plan
    receptacles: tuple[Receptacle, ...]  # by id, then those that were given a place
    types: frozenset[str]  # of everything in it


def read_room(kind: str, number: int, rng: random.Random) -> Room:
    """Floor plan `number`; `rng` places what the layout tells no place for."""
    layout, types = _layout(number)
    receptacles = []
    for key, (x, z, turn, view) in sorted(layout.items()):
        type_ = key.split("|")[0]
        if type_ in ("Sink", "Bathtub"):
            type_ += "Basin"
            key = key if key.endswith("Basin") else f"{key}|{type_}"
        if type_ in STATIC:
            receptacles.append(Receptacle(key, type_, place(round(x * _GRID), round(z * _GRID), turn // 90, view)))
    placed = {receptacle.type for receptacle in receptacles}
    for type_ in _UNPLACED[kind]:
        if type_ in types and type_ not in placed:
            where = place(
                rng.randint(-8, 8), rng.randint(-8, 8), rng.randint(0, 3), rng.choice((-30, 0, 15, 30, 45, 60))
            )
            receptacles.append(Receptacle(entity(type_, rng), type_, where))
    return Room(number, tuple(receptacles), types)


def entity(type_: str, rng: random.Random) -> str:
    """An identifier in upstream's form, a type and coordinates in metres."""
    x, y, z = rng.uniform(-3, 3), rng.uniform(0.1, 2.2), rng.uniform(-3, 3)
    return f"{type_}|{x:+06.2f}|{y:+06.2f}|{z:+06.2f}"


def place(x: int, z: int, turn: int, view: float) -> str:
    """A place to stand."""
    return f"loc|{x}|{z}|{int(turn)}|{int(view)}"


@cache
def _layout(number: int) -> tuple[dict[str, tuple[float, float, int, int]], frozenset[str]]:
    folder = resources.files("alfworld.gen") / "layouts"
    places = (folder / f"FloorPlan{number}-openable.json").read_bytes()
    types = (folder / f"FloorPlan{number}-objects.json").read_bytes()
    return (
        msgspec.json.decode(places, type=dict[str, tuple[float, float, int, int]], strict=False),
        frozenset(msgspec.json.decode(types, type=list[str])),
    )
