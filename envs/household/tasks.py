"""Generated tasks: split, index and level decide everything.

Training and held-out tasks share no (kind, object, target): of each kind's combinations, the fifth with the smallest
hash is held out.
"""

from __future__ import annotations

import hashlib
import random
from functools import cache

import msgspec

from envs.household.catalogue import (
    APPLIANCES,
    KINDS,
    LAMP,
    LAMP_PLACE,
    MOST_OF_A_TYPE,
    OBJECTS,
    PLACES,
    SUITABLE,
    USUAL_PLACES,
    Kind,
    type_of,
)
from stream_rl.types import Split


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """What has to be true at the end.

    >>> Goal(kind="heat", object="apple", target="countertop")  # put a hot apple in countertop
    """

    kind: Kind  # which of the six tasks
    object: str  # type of the object
    target: str  # type of the place it belongs in; "desklamp" for "light"

    @property
    def appliance(self) -> str | None:
        """The place that heats, cools or cleans; None where nothing has to be processed."""
        return APPLIANCES.get(self.kind)


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """How hard a room is."""

    places: int  # receptacles in the room
    objects: int  # objects in the room, the lamp not counted
    usual_frac: float  # share of objects that lie where one would expect them


LEVELS = {
    "easy": Level(places=5, objects=4, usual_frac=0.9),
    "standard": Level(places=7, objects=7, usual_frac=0.7),
    "hard": Level(places=12, objects=14, usual_frac=0.5),
}


class HouseholdTask(msgspec.Struct, frozen=True, kw_only=True):
    """A room as it is found, and the goal."""

    goal: Goal  # what to achieve
    places: tuple[str, ...]  # numbered receptacles, in the order they are told
    located: dict[str, str]  # numbered object -> numbered place


@cache
def combinations(split: Split, kind: Kind) -> tuple[Goal, ...]:
    """All goals of a kind that belong to a split."""
    targets = ("desklamp",) if kind == "light" else tuple(PLACES)
    appliance = APPLIANCES.get(kind, "")
    goals = [
        Goal(kind=kind, object=thing, target=target)
        for thing in SUITABLE[kind]
        for target in targets
        if target != type_of(appliance)
    ]
    goals.sort(key=lambda goal: hashlib.sha256(f"{kind}/{goal.object}/{goal.target}".encode()).digest())
    num_held_out = -(-len(goals) // 5)
    return tuple(goals[:num_held_out] if split == "held_out" else goals[num_held_out:])


def generate_task(split: Split, index: int, level: Level = LEVELS["standard"]) -> HouseholdTask:
    """Task number `index` of a split. Kinds are equally frequent."""
    rng = random.Random(f"household/{split}/{index}")
    goal = rng.choice(combinations(split, rng.choice(KINDS)))
    places = _furnish(rng, goal, level)
    located: dict[str, str] = {}
    counts: dict[str, int] = {}

    def add(thing: str, avoid: str = "") -> None:
        counts[thing] = counts.get(thing, 0) + 1
        located[f"{thing} {counts[thing]}"] = _put(rng, thing, [p for p in places if type_of(p) != avoid], level)

    for _ in range(2 if goal.kind == "two" else 1):
        add(goal.object, avoid=goal.target)
    others = [thing for thing in OBJECTS if thing != goal.object]
    while len(located) < level.objects:
        thing = rng.choice(others)
        if counts.get(thing, 0) < MOST_OF_A_TYPE:
            add(thing)
    if goal.kind == "light":
        located[LAMP] = LAMP_PLACE
    return HouseholdTask(goal=goal, places=places, located=located)


def _furnish(rng: random.Random, goal: Goal, level: Level) -> tuple[str, ...]:
    """Types the goal needs, then random ones; numbers of one type are consecutive from 1."""
    needed = [type_of(LAMP_PLACE) if goal.kind == "light" else goal.target]
    if goal.appliance:
        needed.append(type_of(goal.appliance))
    pool = [place for place, most in PLACES.items() for _ in range(most - (place in needed))]
    types = needed + rng.sample(pool, level.places - len(needed))
    counts: dict[str, int] = {}
    names = []
    for place in types:
        counts[place] = counts.get(place, 0) + 1
        names.append(f"{place} {counts[place]}")
    rng.shuffle(names)
    return tuple(names)


def _put(rng: random.Random, thing: str, places: list[str], level: Level) -> str:
    if rng.random() < level.usual_frac:
        kinds = [type_of(place) for place in places]
        weights = [USUAL_PLACES[thing].get(kind, 0.0) / kinds.count(kind) for kind in kinds]
        if any(weights):
            return rng.choices(places, weights)[0]
    return rng.choice(places)
