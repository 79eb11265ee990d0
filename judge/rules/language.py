"""The command language and the sentences of a household text world, as the judge reads them."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

import msgspec

from judge.rules.commonsense import LAMP, TREATMENTS

Verb = Literal["go", "open", "close", "take", "move", "heat", "cool", "clean", "use", "look", "inventory", "examine"]
GoalKind = Literal["place", "light", "clean", "heat", "cool", "two"]

LONGEST_COMMAND = 200  # characters
_N = r"[a-z]{1,40} \d{1,4}"
_COMMAND = re.compile(
    rf"go to (?P<go>{_N})"
    rf"|(?P<door>open|close) (?P<door_place>{_N})"
    rf"|take (?P<take>{_N}) from (?P<take_place>{_N})"
    rf"|move (?P<move>{_N}) to (?P<move_place>{_N})"
    rf"|put (?P<put>{_N}) (?:in/on|in|on) (?P<put_place>{_N})"
    rf"|(?P<treat>heat|cool|clean) (?P<treated>{_N}) with (?P<tool>{_N})"
    rf"|(?P<other>use|examine) (?P<other_thing>{_N})"
    r"|(?P<plain>look|inventory)"
)
_NAME = re.compile(r"\b([a-z]{1,40} \d{1,4})\b")
_LISTING = re.compile(r"you see ([^.\n]*)")
_TASK = re.compile(r"your task is to\s*:?\s*([^.\n]*)")
_CLOSED = re.compile(r"\bis closed\b")

_ARTICLE = r"(?:an? |some |the )?"
_IN = r"(?:in/on|in|on) (?:the |an? )?([a-z]+)"
_LIGHT = re.compile(rf"(?:look at|examine) {_ARTICLE}([a-z]+) (?:under|with) (?:the |a )?{LAMP}")
_TWO = re.compile(rf"(?:put two ([a-z]+)|find two ([a-z]+) and put them) {_IN}")
_TREATED = re.compile(rf"put {_ARTICLE}({'|'.join(TREATMENTS)}) ([a-z]+) {_IN}")
_TREAT_THEN = re.compile(rf"(heat|cool|clean) {_ARTICLE}([a-z]+) and put (?:it|them) {_IN}")
_PLACE = re.compile(rf"(?:put|find) {_ARTICLE}([a-z]+)(?: and put (?:it|them))? {_IN}")


class Command(NamedTuple):
    """A parsed action; `thing` and `place` are numbered names, empty where the verb takes none."""

    verb: Verb
    thing: str = ""
    place: str = ""


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """What the task text asks for.

    >>> read_goal("Your task is to: put a hot apple in countertop.")
    Goal(kind='heat', thing='apple', target='countertop')
    """

    kind: GoalKind  # "two": two of a kind; "heat", "cool", "clean": treat, then deliver
    thing: str  # kind of thing
    target: str  # kind of place, or the lamp


def kind_of(name: str) -> str:
    """ "mug" of "mug 2"."""
    return name.partition(" ")[0]


def normalise(action: str) -> str:
    """Lower case, single spaces, no final stop; an overlong action becomes its beginning."""
    return " ".join(action[: LONGEST_COMMAND + 1].lower().replace(".", " ").split())


def read_command(action: str) -> Command | None:
    """The command in a normalised action; None if it is not one."""
    match = _COMMAND.fullmatch(action) if len(action) <= LONGEST_COMMAND else None
    if match is None:
        return None
    verb: Verb
    match match.lastgroup:
        case "go":
            return Command("go", place=match["go"])
        case "door_place":
            verb = "open" if match["door"] == "open" else "close"
            return Command(verb, place=match["door_place"])
        case "take_place":
            return Command("take", match["take"], match["take_place"])
        case "move_place":
            return Command("move", match["move"], match["move_place"])
        case "put_place":
            return Command("move", match["put"], match["put_place"])
        case "tool":
            verb = "heat" if match["treat"] == "heat" else "cool" if match["treat"] == "cool" else "clean"
            return Command(verb, match["treated"], match["tool"])
        case "other_thing":
            verb = "use" if match["other"] == "use" else "examine"
            return Command(verb, match["other_thing"])
    return Command("look" if match["plain"] == "look" else "inventory")


def read_goal(first_observation: str) -> Goal | None:
    """The goal told in the first observation; None if it is not one of the household's."""
    told = _TASK.search(first_observation.lower())
    if told is None:
        return None
    text = " ".join(told.group(1).split())
    if m := _LIGHT.match(text):
        return Goal(kind="light", thing=m[1], target=LAMP)
    if m := _TWO.match(text):
        return Goal(kind="two", thing=m[1] or m[2], target=m[3])
    if m := _TREATED.match(text) or _TREAT_THEN.match(text):
        treatment = TREATMENTS.get(m[1], m[1])
        kind: GoalKind = "heat" if treatment == "heat" else "cool" if treatment == "cool" else "clean"
        return Goal(kind=kind, thing=m[2], target=m[3])
    if m := _PLACE.match(text):
        return Goal(kind="place", thing=m[1], target=m[2])
    return None


def read_listing(observation: str) -> tuple[str, ...] | None:
    """Names after "you see", up to the end of the sentence; None if nothing is listed at all."""
    told = _LISTING.search(observation.lower())
    return None if told is None else tuple(_NAME.findall(told.group(1)))


def says_closed(observation: str) -> bool:
    """Whether the first sentence says that the place is closed."""
    return _CLOSED.search(observation.lower().partition(".")[0]) is not None
