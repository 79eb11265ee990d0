"""The words of the world: commands it understands and sentences it answers with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from envs.household.tasks import Goal

Verb = Literal["go", "open", "close", "take", "move", "heat", "cool", "clean", "use", "look", "inventory", "examine"]

LONGEST_COMMAND = 200  # characters; more is not a command, and is not searched for one

NOTHING_HAPPENS = "Nothing happens."
ROOM = "You are in the middle of a room."
TASK_PREFIX = "Your task is to: "

INSTRUCTIONS = (
    "You act in a house by text commands. Answer with exactly one command and nothing else.\n"
    "Commands: go to PLACE | open PLACE | close PLACE | take OBJECT from PLACE | move OBJECT to PLACE | "
    "heat OBJECT with microwave 1 | cool OBJECT with fridge 1 | clean OBJECT with sinkbasin 1 | use desklamp 1 | "
    "look | inventory | examine THING\n"
    "Places and objects have a number, as in: take mug 1 from cabinet 2\n\n"
)

_QUALITY = {"heat": "a hot ", "cool": "a cool ", "clean": "a clean ", "place": "some ", "two": "two "}


class Command(NamedTuple):
    """A parsed action. `thing` and `place` are numbered names, empty where the verb takes none."""

    verb: Verb
    thing: str = ""
    place: str = ""


def parse_command(text: str) -> Command | None:
    """The command in `text`, or None. Case, extra spaces and a final full stop do not matter."""
    if len(text) > LONGEST_COMMAND:
        return None
    match text.lower().rstrip(" \n.").split():
        case ["go", "to", kind, number]:
            return Command("go", place=f"{kind} {number}")
        case ["take", thing, n, "from", place, m]:
            return Command("take", f"{thing} {n}", f"{place} {m}")
        case ["move", thing, n, "to", place, m]:
            return Command("move", f"{thing} {n}", f"{place} {m}")
        case ["open" | "close" as verb, place, m]:
            return Command(verb, place=f"{place} {m}")
        case ["heat" | "cool" | "clean" as verb, thing, n, "with", place, m]:
            return Command(verb, f"{thing} {n}", f"{place} {m}")
        case ["use" | "examine" as verb, thing, n]:
            return Command(verb, f"{thing} {n}")
        case ["look" | "inventory" as verb]:
            return Command(verb)
    return None


def describe_goal(goal: Goal) -> str:
    """ "put a hot apple in countertop"."""
    if goal.kind == "light":
        return f"look at {goal.object} under the desklamp"
    return f"put {_QUALITY[goal.kind]}{goal.object} in {goal.target}"


def parse_goal(text: str) -> Goal:
    """The goal told in a first observation. Raises `ValueError` for a text that tells none."""
    words = text.partition(TASK_PREFIX)[2].split("\n")[0].rstrip(".").split()
    match words:
        case ["look", "at", thing, "under", "the", "desklamp"]:
            return Goal(kind="light", object=thing, target="desklamp")
        case ["put", "two", thing, "in", target]:
            return Goal(kind="two", object=thing, target=target)
        case ["put", "some", thing, "in", target]:
            return Goal(kind="place", object=thing, target=target)
        case ["put", "a", "hot", thing, "in", target]:
            return Goal(kind="heat", object=thing, target=target)
        case ["put", "a", "cool", thing, "in", target]:
            return Goal(kind="cool", object=thing, target=target)
        case ["put", "a", "clean", thing, "in", target]:
            return Goal(kind="clean", object=thing, target=target)
    raise ValueError(f"no goal in {text[:200]!r}; expected a sentence that begins with {TASK_PREFIX!r}")


def listing(names: Iterable[str]) -> str:
    """ "apple 1, mug 2" or "nothing"."""
    return ", ".join(names) or "nothing"


def parse_listing(text: str) -> list[str]:
    """The names in a listing."""
    return [] if text == "nothing" else text.split(", ")


def first_observation(places: Sequence[str], goal: Goal) -> str:
    """What is seen from the middle of the room, and the task."""
    return f"{ROOM} You see {listing(places)}. {TASK_PREFIX}{describe_goal(goal)}."
