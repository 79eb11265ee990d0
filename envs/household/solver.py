"""A player that knows everything: the proof that a generated task can be solved, and in how few turns."""

from __future__ import annotations

from envs.household.catalogue import LAMP, LAMP_PLACE, opens, type_of
from envs.household.tasks import HouseholdTask


def solve(task: HouseholdTask) -> list[str]:
    """Actions that reach the goal from the start of the episode; at most 12 for any task."""
    goal = task.goal
    actions: list[str] = []
    opened: set[str] = set()
    at = ""

    def visit(place: str, *, reach_inside: bool) -> None:
        nonlocal at
        if place != at:
            actions.append(f"go to {place}")
            at = place
        if reach_inside and opens(place) and place not in opened:
            actions.append(f"open {place}")
            opened.add(place)

    wanted = [thing for thing in task.located if type_of(thing) == goal.object]
    for thing in wanted[: 2 if goal.kind == "two" else 1]:
        source = task.located[thing]
        visit(source, reach_inside=True)
        actions.append(f"take {thing} from {source}")
        if goal.kind == "light":
            visit(LAMP_PLACE, reach_inside=False)
            actions.append(f"use {LAMP}")
            continue
        if goal.appliance:
            visit(goal.appliance, reach_inside=False)
            actions.append(f"{goal.kind} {thing} with {goal.appliance}")
        target = next(place for place in task.places if type_of(place) == goal.target)
        visit(target, reach_inside=True)
        actions.append(f"move {thing} to {target}")
    return actions
