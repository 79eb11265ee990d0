"""What there is in a household: places, objects, what can be done with them, and where they usually lie."""

from __future__ import annotations

from typing import Literal, get_args

Kind = Literal["place", "light", "clean", "heat", "cool", "two"]
KINDS: tuple[Kind, ...] = get_args(Kind)

FOOD = ("apple", "potato", "egg", "bread", "lettuce")
DISHES = ("mug", "plate", "pan", "knife")
BELONGINGS = ("soap", "cloth", "book", "key", "card", "watch")
OBJECTS = FOOD + DISHES + BELONGINGS

# Most places of one type that one room can hold.
PLACES = {
    "cabinet": 3,
    "drawer": 3,
    "countertop": 2,
    "shelf": 3,
    "sidetable": 1,
    "garbagecan": 1,
    "desk": 1,
    "fridge": 1,
    "microwave": 1,
    "sinkbasin": 1,
}
OPENABLE = frozenset({"cabinet", "drawer", "fridge", "microwave"})

LAMP = "desklamp 1"
LAMP_PLACE = "desk 1"
MOST_OF_A_TYPE = 2  # objects of one type in one room

APPLIANCES = {"heat": "microwave 1", "cool": "fridge 1", "clean": "sinkbasin 1"}

SUITABLE: dict[Kind, tuple[str, ...]] = {
    "place": OBJECTS,
    "light": ("mug", "plate", "cloth", "book", "key", "card", "watch"),
    "clean": ("apple", "potato", "lettuce", "mug", "plate", "pan", "knife", "soap", "cloth"),
    "heat": ("apple", "potato", "egg", "bread", "mug", "plate"),
    "cool": ("apple", "potato", "egg", "bread", "lettuce", "mug", "plate", "pan"),
    "two": OBJECTS,
}

_USUAL_FOOD = {"fridge": 0.4, "countertop": 0.3, "microwave": 0.1, "garbagecan": 0.1, "sidetable": 0.1}
_USUAL_DISHES = {"cabinet": 0.4, "countertop": 0.25, "sinkbasin": 0.2, "shelf": 0.15}
_USUAL_BELONGINGS = {"drawer": 0.35, "shelf": 0.25, "desk": 0.2, "sidetable": 0.2}

# Probability of each type of place, for an object that lies where one would expect it.
USUAL_PLACES: dict[str, dict[str, float]] = {
    **dict.fromkeys(FOOD, _USUAL_FOOD),
    **dict.fromkeys(DISHES, _USUAL_DISHES),
    **dict.fromkeys(BELONGINGS, _USUAL_BELONGINGS),
}


def type_of(name: str) -> str:
    """Type of a numbered thing: "mug" of "mug 2"."""
    return name.partition(" ")[0]


def opens(place: str) -> bool:
    """Whether a numbered place has a door."""
    return type_of(place) in OPENABLE
