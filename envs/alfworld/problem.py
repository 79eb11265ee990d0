"""A setting as upstream's files have it: the PDDL problem, the trial, and the commands that solve it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import alfworld.gen.constants as upstream
from alfworld.gen.goal_library import gdict

from envs.alfworld.rooms import OPENABLE, Receptacle
from envs.alfworld.setting import APPLIANCE, LAMPS, Setting, Thing, can_hold, is_able

# Types that actions of the domain name, so every problem has to know them.
_NAMED_RECEPTACLES = ("SinkBasin", "Microwave", "Fridge")
_NAMED_THINGS = ("Knife", "ButterKnife")

_SPELLING = (("-", "_minus_"), ("|", "_bar_"), ("+", "_plus_"), (".", "_dot_"), (",", "_comma_"), ("#", "-"))
_ABILITIES = ("Cleanable", "Heatable", "Coolable", "Toggleable", "Sliceable")
_VERBS = {"SinkBasin": "clean", "Microwave": "heat", "Fridge": "cool"}


class Move(NamedTuple):
    """A command whose entities have no names yet."""

    words: str  # "take {} from {}"
    ids: tuple[str, ...] = ()  # as the PDDL problem spells them, in lower case


def task_description(setting: Setting, rng: random.Random) -> str:
    """The goal in one of upstream's templates: "put a clean mug in coffeemachine"."""
    template: str = rng.choice(gdict[setting.kind]["templates"])
    return template.format(
        obj=setting.target.lower(), recep=setting.parent.lower(), toggle=setting.lamp.lower(), mrecep=""
    )


def trial(setting: Setting, name: str, description: str) -> dict[str, Any]:
    """What stands in `traj_data.json`, as far as the text games read it; `generated` says that nobody recorded it."""
    return {
        "task_id": name,
        "task_type": setting.kind,
        "pddl_params": {
            "object_target": setting.target,
            "parent_target": setting.parent,
            "toggle_target": setting.lamp,
            "mrecep_target": "",
            "object_sliced": False,
        },
        "scene": {"floor_plan": f"FloorPlan{setting.room.number}", "scene_num": setting.room.number},
        "turk_annotations": {"anns": [{"task_desc": description, "high_descs": [], "votes": [1]}]},
        "plan": {},
        "images": [],
        "generated": True,
    }


def pddl_problem(setting: Setting, name: str) -> str:
    """The problem in upstream's PDDL domain. Types that the room does not have are left out."""
    goal = gdict[setting.kind]["pddl"].format(obj=setting.target, recep=setting.parent, toggle=setting.lamp, mrecep="")
    objects, init = "\n".join(_objects(setting)), "\n".join(_facts(setting))
    text = f"(define (problem plan_{name})\n(:domain alfred)\n(:objects\n{objects}\n)\n\n(:init\n{init}\n)\n{goal}"
    return spelled(text, around=True)


def solution(setting: Setting) -> list[Move]:
    """Moves that reach the goal from the start."""
    moves: list[Move] = []
    opened: set[str] = set()
    at = ""

    def go(there: Receptacle, *, inside: bool = True) -> None:
        nonlocal at
        if there.place != at:
            moves.append(_move("go to {}", there))
            at = there.place
        if inside and there.type in OPENABLE and there.id not in opened:
            moves.append(_move("open {}", there))
            opened.add(there.id)

    for thing in setting.targets[: 2 if setting.kind == "pick_two_obj_and_place" else 1]:
        go(thing.where)
        moves.append(_move("take {} from {}", thing, thing.where))
        if setting.kind in APPLIANCE:
            appliance = _first(setting, APPLIANCE[setting.kind][0])
            go(appliance, inside=False)
            moves.append(_move(f"{_VERBS[appliance.type]} {{}} with {{}}", thing, appliance))
        if setting.lamp:
            lamp = next(lamp for lamp in setting.things if lamp.type == setting.lamp)
            go(lamp.where)
            moves.append(_move("use {}", lamp))
        else:
            parent = _first(setting, setting.parent)
            go(parent)
            moves.append(_move("move {} to {}", thing, parent))
    return moves


def commands(moves: Iterable[Move], names: Mapping[str, str]) -> list[str]:
    """The moves as commands, with the names a loaded game has for its entities."""
    return [move.words.format(*(names[id_] for id_ in move.ids)) for move in moves]


def spelled(text: str, *, around: bool = False) -> str:
    """Identifiers as PDDL allows them. `around`: the text has minus signs, written as "#" until here, beside them.

    >>> spelled("Mug|-01.50|+00.9")
    'Mug_bar__minus_01_dot_50_bar__plus_00_dot_9'
    """
    for character, word in _SPELLING if around else _SPELLING[:-1]:
        text = text.replace(character, word)
    return text


def _objects(setting: Setting) -> list[str]:
    """Typed objects, with "#" in place of "-"."""
    receptacles, things = setting.room.receptacles, setting.things
    thing_types = sorted({*(thing.type for thing in things), *_NAMED_THINGS})
    receptacle_types = sorted({*(there.type for there in receptacles), *_NAMED_RECEPTACLES})
    places = sorted({*(there.place for there in receptacles), setting.start})
    return [
        "agent1 # agent",
        *(f"{type_}Type # otype" for type_ in thing_types),
        *(f"{type_}Type # rtype" for type_ in receptacle_types),
        *(f"{thing.id} # object" for thing in sorted(things)),
        *(f"{there.id} # receptacle" for there in sorted(receptacles)),
        *(f"{place} # location" for place in places),
    ]


def _facts(setting: Setting) -> list[str]:
    receptacles, things = setting.room.receptacles, setting.things
    present = sorted({thing.type for thing in things})
    facts = [f"(receptacleType {there.id} {there.type}Type)" for there in receptacles]
    facts += [f"(objectType {thing.id} {thing.type}Type)" for thing in things]
    facts += [
        f"(canContain {type_}Type {thing}Type)"
        for type_ in sorted({there.type for there in receptacles})
        for thing in present
        if can_hold(type_, thing)
    ]
    facts += [f"(pickupable {thing.id})" for thing in things if thing.type not in LAMPS]
    facts += [f"(isReceptacleObject {t.id})" for t in things if t.type in upstream.MOVABLE_RECEPTACLES_SET]
    facts += [f"(openable {there.id})" for there in receptacles if there.type in OPENABLE]
    facts.append(f"(atLocation agent1 {setting.start})")
    for ability in _ABILITIES:
        facts += [f"({ability.lower()} {thing.id})" for thing in things if is_able(thing.type, ability)]
    facts += [f"(inReceptacle {thing.id} {thing.where.id})" for thing in things]
    facts += [f"(receptacleAtLocation {there.id} {there.place})" for there in receptacles]
    facts += [f"(objectAtLocation {thing.id} {thing.where.place})" for thing in things]
    return facts


def _first(setting: Setting, type_: str) -> Receptacle:
    return next(there for there in setting.room.receptacles if there.type == type_)


def _move(words: str, *entities: Thing | Receptacle) -> Move:
    return Move(words, tuple(spelled(entity.id).lower() for entity in entities))
