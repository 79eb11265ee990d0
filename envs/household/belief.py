"""What a player knows of the room, from observations alone."""

from __future__ import annotations

import re

from envs.household.catalogue import opens, type_of
from envs.household.language import NOTHING_HAPPENS, ROOM, parse_command, parse_goal, parse_listing

_PLACES = re.compile(re.escape(ROOM) + r" You see ([^.]*)\.")
_CONTENTS = re.compile(r"you see ([^.]*)\.")


class Belief:
    """Built from the first observation, then updated with every (action, answer).

    Raises `ValueError` if the first observation tells no places or no goal.
    """

    def __init__(self, first_observation: str) -> None:
        places = _PLACES.search(first_observation)
        if places is None:
            raise ValueError(f"no list of places in {first_observation[:200]!r}")
        self.places = tuple(parse_listing(places[1]))
        self.goal = parse_goal(first_observation)
        self.at: str | None = None
        self.holding: str | None = None
        self.open: set[str] = set()
        self.processed: dict[str, str] = {}
        self.contents: dict[str, list[str]] = {}  # only places that were seen into

    def closed(self, place: str) -> bool:
        """Whether its door is shut, as far as is known: doors are shut until one opens them."""
        return opens(place) and place not in self.open

    def unsearched(self) -> list[str]:
        """Places never seen into, in the order they were told."""
        return [place for place in self.places if place not in self.contents]

    def wanted(self) -> list[tuple[str, str]]:
        """(object, place) of objects of the goal's type that still have to be dealt with."""
        delivered = self.goal.target if self.goal.kind == "two" else None
        return [
            (thing, place)
            for place, things in self.contents.items()
            for thing in things
            if type_of(thing) == self.goal.object and type_of(place) != delivered
        ]

    def update(self, action: str, answer: str) -> None:
        """Take in what the world answered."""
        command = parse_command(action)
        if command is None or answer == NOTHING_HAPPENS:
            return
        verb, thing, place = command
        match verb:
            case "go":
                self.at = place
            case "open":
                self.open.add(place)
            case "close":
                self.open.discard(place)
            case "take":
                self.holding = thing
                self.contents[place].remove(thing)
            case "move":
                self.holding = None
                self.contents[place].append(thing)
            case "heat" | "cool" | "clean":
                self.processed[thing] = verb
            case "use" | "look" | "inventory" | "examine":
                pass
        seen = _CONTENTS.search(answer)
        if seen and self.at:
            self.contents[self.at] = parse_listing(seen[1])
