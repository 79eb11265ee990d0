"""A searching player that sees only observations, errs at a chosen rate, and heeds advice.

It is the teacher of the embedded policy: each kind of error belongs to one behavioural rubric, and a player that was
told the rubric does not make it. The policy that imitates it learns what the phrases mean.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection

from envs.household.belief import Belief
from envs.household.catalogue import LAMP, LAMP_PLACE, USUAL_PLACES, type_of

SEARCH_ORDER = "planning.likely_places"


class Player:
    """Plays one episode: `act`, tell the world, `observe` its answer, and again.

    noise: probability of an error at each decision where one is possible, 0 to 1
    heeds: ids of rubrics it was told; the error of each is replaced by the best action
    foresight: probability of searching the likeliest place next instead of the next one told; 1 when advised to
    """

    def __init__(
        self,
        first_observation: str,
        rng: random.Random,
        *,
        noise: float = 0.0,
        heeds: Collection[str] = (),
        foresight: float = 0.3,
    ) -> None:
        self.belief = Belief(first_observation)
        self._rng = rng
        self._noise = noise
        self._heeds = frozenset(heeds)
        self._foresight = 1.0 if SEARCH_ORDER in self._heeds else foresight
        self._passed: set[str] = set()  # closed places left closed on purpose, until nothing else is left

    def observe(self, action: str, answer: str) -> None:
        """Take in the world's answer to the last action."""
        self.belief.update(action, answer)

    def act(self) -> str:
        """The next action: usually the best one known."""
        best = self._best()
        if self._noise and self._rng.random() < self._noise:
            for rubric, error in self._rng.sample(tuple(ERRORS.items()), len(ERRORS)):
                action = error(self)
                if action is not None and action != best:
                    if rubric in self._heeds:
                        return best
                    if rubric == "exploration.open_closed" and self.belief.at:
                        self._passed.add(self.belief.at)
                    return action
        return best

    def _best(self) -> str:
        held = self.belief.holding
        if held and type_of(held) == self.belief.goal.object:
            return self._deliver(held)
        if held:
            return self._put_down(held)
        return self._fetch() or self._search()

    def _deliver(self, held: str) -> str:
        b = self.belief
        if b.goal.kind == "light":
            return f"use {LAMP}" if b.at == LAMP_PLACE else f"go to {LAMP_PLACE}"
        appliance = b.goal.appliance
        if appliance and b.processed.get(held) != b.goal.kind:
            return f"{b.goal.kind} {held} with {appliance}" if b.at == appliance else f"go to {appliance}"
        if b.at and type_of(b.at) == b.goal.target:
            return f"open {b.at}" if b.closed(b.at) else f"move {held} to {b.at}"
        targets = [place for place in b.places if type_of(place) == b.goal.target]
        return f"go to {next((place for place in targets if place in b.open), targets[0])}"

    def _put_down(self, held: str) -> str:
        b = self.belief
        if b.at is None:
            return f"go to {b.places[0]}"
        return f"open {b.at}" if b.closed(b.at) else f"move {held} to {b.at}"

    def _fetch(self) -> str | None:
        b = self.belief
        wanted = b.wanted()
        if not wanted:
            return None
        thing, place = next((pair for pair in wanted if pair[1] == b.at), wanted[0])
        if place != b.at:
            return f"go to {place}"
        return f"open {place}" if b.closed(place) else f"take {thing} from {place}"

    def _search(self) -> str:
        b = self.belief
        if b.at and b.closed(b.at) and b.at not in b.contents and b.at not in self._passed:
            return f"open {b.at}"
        unsearched = b.unsearched()
        if not [place for place in unsearched if place not in self._passed]:
            self._passed.clear()
        if unsearched == [b.at]:
            return f"open {b.at}"
        left = [place for place in unsearched if place != b.at and place not in self._passed]
        # What is to be brought to a place does not lie there already.
        left = [place for place in left if type_of(place) != b.goal.target] or left
        left = left or [place for place in b.places if place != b.at]
        if self._rng.random() < self._foresight:
            usual = USUAL_PLACES[b.goal.object]
            return f"go to {max(left, key=lambda place: usual.get(type_of(place), 0.0))}"
        return f"go to {self._next_told(left)}"

    def _next_told(self, left: list[str]) -> str:
        """The first of `left` after the current place, in the order the places were told, going round."""
        told = self.belief.places
        here = told.index(self.belief.at) if self.belief.at else -1
        return min(left, key=lambda place: (told.index(place) - here) % len(told))

    def _search_again(self) -> str | None:
        b = self.belief
        if b.holding or (b.at and b.closed(b.at) and b.at not in b.contents):
            return None
        return self._go_to_any([place for place in b.places if place in b.contents and place != b.at])

    def _leave_closed(self) -> str | None:
        b = self.belief
        if b.holding or b.at is None or not b.closed(b.at) or b.at in b.contents:
            return None
        others = [place for place in b.places if place != b.at]
        return self._go_to_any([place for place in others if place not in b.contents] or others)

    def _fail(self) -> str | None:
        b = self.belief
        if b.at is None:
            return None
        if b.holding and b.goal.appliance and b.at != b.goal.appliance:
            return f"{b.goal.kind} {b.holding} with {b.goal.appliance}"
        return f"close {b.at}" if b.closed(b.at) else f"open {b.at}"

    def _wander(self) -> str | None:
        b = self.belief
        return self._go_to_any([place for place in b.places if place != b.at]) if b.holding else None

    def _shut(self) -> str | None:
        at = self.belief.at
        return f"close {at}" if at in self.belief.open else None

    def _idle(self) -> str | None:
        at = self.belief.at
        return self._rng.choice(["look", "inventory", *([f"examine {at}"] if at else [])])

    def _take_other(self) -> str | None:
        b = self.belief
        if b.holding or b.at is None or b.closed(b.at):
            return None
        others = [t for t in b.contents.get(b.at, ()) if type_of(t) != b.goal.object and t != LAMP]
        return f"take {self._rng.choice(others)} from {b.at}" if others else None

    def _go_to_any(self, places: list[str]) -> str | None:
        return f"go to {self._rng.choice(places)}" if places else None


# The error each rubric prevents. An error that is impossible now gives None.
ERRORS: dict[str, Callable[[Player], str | None]] = {
    "exploration.new_places": Player._search_again,
    "exploration.open_closed": Player._leave_closed,
    "precision.valid_actions": Player._fail,
    "efficiency.direct_route": Player._wander,
    "efficiency.keep_open": Player._shut,
    "efficiency.no_idle_looks": Player._idle,
    "focus.needed_objects": Player._take_other,
}

CORE_RUBRICS = (*ERRORS, SEARCH_ORDER)
