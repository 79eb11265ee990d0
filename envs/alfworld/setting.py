"""A task and the room it is set in, drawn at random: what lies where, and what has to be done."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import alfworld.gen.constants as upstream

from envs.alfworld.games import Kind
from envs.alfworld.rooms import STATIC, Receptacle, Room, entity, place

# What is done with an object on its way: the appliance, and the property of objects it can be done with.
APPLIANCE: dict[Kind, tuple[str, str]] = {
    "pick_clean_then_place_in_recep": ("SinkBasin", "Cleanable"),
    "pick_heat_then_place_in_recep": ("Microwave", "Heatable"),
    "pick_cool_then_place_in_recep": ("Fridge", "Coolable"),
}
LAMPS = ("DeskLamp", "FloorLamp")

# Parts of a room, which upstream lists among its objects.
_FIXED = frozenset(
    {
        *("Bathtub", "Blinds", "Boots", "Chair", "Curtains", "DeskLamp", "Faucet", "FloorLamp", "Footstool"),
        *("HousePlant", "LaundryHamperLid", "LightSwitch", "Mirror", "Painting", "Poster", "ShowerDoor"),
        *("ShowerGlass", "Sink", "StoveKnob", "Television", "Window"),
    }
)
_LAMP_STANDS = frozenset(
    {
        *("ArmChair", "Bed", "CoffeeTable", "Desk", "DiningTable"),
        *("Dresser", "Shelf", "SideTable", "Sofa", "TVStand"),
    }
)
_MOST_OF_A_TYPE = 3

T = TypeVar("T")


class Infeasible(Exception):
    """The room has no task of that kind, or this draw of one cannot be solved."""


class Thing(NamedTuple):
    """One object."""

    id: str  # "Apple|+00.12|+01.10|-00.40"
    type: str  # "Apple"
    where: Receptacle  # that holds it at the start


class Setting(NamedTuple):
    """All that a game is made from."""

    kind: Kind
    room: Room
    things: tuple[Thing, ...]
    target: str  # type of the object that the task is about
    parent: str  # type of the receptacle it goes to; empty for a lamp task
    lamp: str  # type of the lamp to look at it under; empty for all others
    start: str  # place where the agent stands at first

    @property
    def targets(self) -> list[Thing]:
        """The objects that would do."""
        return [thing for thing in self.things if thing.type == self.target]


def can_hold(receptacle: str, thing: str) -> bool:
    """Whether a type of receptacle takes a type of object."""
    return thing in upstream.VAL_RECEPTACLE_OBJECTS.get(receptacle, ())


def is_able(thing: str, ability: str) -> bool:
    """Whether a type of object is Cleanable, Heatable, Coolable, Toggleable or Sliceable."""
    return thing in upstream.VAL_ACTION_OBJECTS[ability]


def draw_setting(kind: Kind, room: Room, rng: random.Random) -> Setting:
    """A task of that kind in that room. Its goal does not hold at the start. Raises `Infeasible`."""
    receptacles = room.receptacles
    here = {receptacle.type for receptacle in receptacles}
    movable = sorted(
        type_
        for type_ in room.types
        if type_ in upstream.OBJECTS_SET - _FIXED - STATIC and any(can_hold(there, type_) for there in here)
    )
    target = rng.choice(_some(_targets(kind, movable, here), f"no object for {kind}"))
    lamp = parent = ""
    if kind == "look_at_obj_in_light":
        lamp = rng.choice(_some([lamp for lamp in LAMPS if lamp in room.types], "no lamp"))
    else:
        parent = rng.choice(_some(sorted(type_ for type_ in here if can_hold(type_, target)), f"nowhere for {target}"))

    things: list[Thing] = []

    def put(type_: str, fitting: list[Receptacle]) -> None:
        things.append(Thing(entity(type_, rng), type_, rng.choice(_some(fitting, f"nowhere for {type_}"))))

    for _ in range(rng.randint(2, 3) if kind == "pick_two_obj_and_place" else rng.randint(1, 2)):
        put(target, [there for there in receptacles if there.type != parent and can_hold(there.type, target)])
    for other in movable:
        if other != target:
            for _ in range(rng.randint(1, _MOST_OF_A_TYPE)):
                put(other, [there for there in receptacles if can_hold(there.type, other)])
    if lamp:
        put(lamp, [there for there in receptacles if there.type in _LAMP_STANDS])
    start = place(rng.randint(-4, 4), rng.randint(-4, 4), 0, 30)
    return Setting(kind, room, tuple(things), target, parent, lamp, start)


def _targets(kind: Kind, movable: Sequence[str], here: set[str]) -> list[str]:
    if kind not in APPLIANCE:
        return list(movable)
    appliance, ability = APPLIANCE[kind]
    if appliance not in here:
        raise Infeasible(f"no {appliance}")
    return [type_ for type_ in movable if is_able(type_, ability)]


def _some(choices: list[T], otherwise: str) -> list[T]:
    if not choices:
        raise Infeasible(otherwise)
    return choices
