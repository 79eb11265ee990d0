"""A room during an episode: where everything is, and what each command does to it."""

from __future__ import annotations

from envs.household.catalogue import APPLIANCES, LAMP, LAMP_PLACE, opens, type_of
from envs.household.language import NOTHING_HAPPENS, ROOM, Command, listing
from envs.household.tasks import HouseholdTask


class Room:
    """Mutable state of one episode. One hand, one lamp; only what is at the current place can be touched."""

    def __init__(self, task: HouseholdTask) -> None:
        self.goal = task.goal
        self.places = task.places
        self.at: str | None = None  # current place; None is the middle of the room
        self.holding: str | None = None
        self.open: set[str] = set()
        self.processed: dict[str, str] = {}  # object -> the last of heat, cool, clean done to it
        self.lamp_on = False
        self.contents: dict[str, list[str]] = {place: [] for place in task.places}
        for thing, place in task.located.items():
            self.contents[place].append(thing)

    def closed(self, place: str) -> bool:
        """Whether a door hides what is in it."""
        return opens(place) and place not in self.open

    def obey(self, command: Command | None) -> str:
        """Carry the command out and say what happened; `NOTHING_HAPPENS` if it cannot be."""
        if command is None:
            return NOTHING_HAPPENS
        verb, thing, place = command
        match verb:
            case "go":
                return self._go(place)
            case "look":
                return self.describe(self.at) if self.at else ROOM
            case "inventory":
                return f"You are carrying: {self.holding or 'nothing'}."
            case "open":
                return self._open(place)
            case "close":
                return self._close(place)
            case "take":
                return self._take(thing, place)
            case "move":
                return self._move(thing, place)
            case "use":
                return self._use(thing)
            case "examine":
                return self._examine(thing)
            case "heat" | "cool" | "clean":
                return self._process(verb, thing, place)

    def solved(self) -> bool:
        """Whether the goal holds now."""
        goal = self.goal
        if goal.kind == "light":
            return self.lamp_on and self.at == LAMP_PLACE and type_of(self.holding or "") == goal.object
        count = 0
        for place, things in self.contents.items():
            if type_of(place) == goal.target:
                for thing in things:
                    count += type_of(thing) == goal.object and (
                        goal.appliance is None or self.processed.get(thing) == goal.kind
                    )
        return count >= (2 if goal.kind == "two" else 1)

    def admissible(self) -> list[str]:
        """Every command that would do something now."""
        actions = ["look", "inventory", *(f"go to {place}" for place in self.places if place != self.at)]
        held = self.holding
        if held:
            actions.append(f"examine {held}")
        at = self.at
        if at is None:
            return actions
        actions.append(f"examine {at}")
        if opens(at):
            actions.append(f"{'open' if self.closed(at) else 'close'} {at}")
        if not self.closed(at):
            things = self.contents[at]
            if held:
                actions.append(f"move {held} to {at}")
            else:
                actions += [f"take {thing} from {at}" for thing in things if thing != LAMP]
            if LAMP in things:
                actions.append(f"use {LAMP}")
        if held:
            actions += [f"{verb} {held} with {at}" for verb, appliance in APPLIANCES.items() if appliance == at]
        return actions

    def describe(self, place: str) -> str:
        """What one sees standing before a place."""
        if not opens(place):
            return f"On the {place}, you see {listing(self.contents[place])}."
        if place not in self.open:
            return f"The {place} is closed."
        return f"The {place} is open. In it, you see {listing(self.contents[place])}."

    def _go(self, place: str) -> str:
        if place not in self.contents or place == self.at:
            return NOTHING_HAPPENS
        self.at = place
        return self.describe(place)

    def _open(self, place: str) -> str:
        if place != self.at or not self.closed(place):
            return NOTHING_HAPPENS
        self.open.add(place)
        return f"You open the {place}. In it, you see {listing(self.contents[place])}."

    def _close(self, place: str) -> str:
        if place != self.at or place not in self.open:
            return NOTHING_HAPPENS
        self.open.remove(place)
        return f"You close the {place}."

    def _take(self, thing: str, place: str) -> str:
        if place != self.at or self.holding or self.closed(place) or thing == LAMP or thing not in self.contents[place]:
            return NOTHING_HAPPENS
        self.contents[place].remove(thing)
        self.holding = thing
        return f"You pick up the {thing} from the {place}."

    def _move(self, thing: str, place: str) -> str:
        if place != self.at or thing != self.holding or self.closed(place):
            return NOTHING_HAPPENS
        self.contents[place].append(thing)
        self.holding = None
        return f"You move the {thing} to the {place}."

    def _process(self, verb: str, thing: str, place: str) -> str:
        if place != self.at or thing != self.holding or APPLIANCES[verb] != place:
            return NOTHING_HAPPENS
        self.processed[thing] = verb
        return f"You {verb} the {thing} using the {place}."

    def _use(self, thing: str) -> str:
        if thing != LAMP or self.at is None or self.closed(self.at) or LAMP not in self.contents[self.at]:
            return NOTHING_HAPPENS
        self.lamp_on = True
        return f"You turn on the {LAMP}."

    def _examine(self, thing: str) -> str:
        if thing == self.at:
            return self.describe(thing)
        if thing == self.holding:
            return f"There is nothing special about the {thing}."
        return NOTHING_HAPPENS
