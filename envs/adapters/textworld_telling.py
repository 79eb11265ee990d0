"""A TextWorld game that has no words (.json alone), told from its facts: what the player can see, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

_STATES = ("open", "closed", "locked")
_WAYS = ("north", "east", "south", "west")


class Named(Protocol):
    """One thing, room or person in a fact."""

    @property
    def name(self) -> str:
        """As people call it."""
        ...

    @property
    def type(self) -> str:
        """Of what kind: "P" the player, "I" the inventory, "r" a room, "d" a door; all others are things."""
        ...


class Fact(Protocol):
    """As `textworld` gives facts for people: at(P, kitchen), in(apple, fridge), north_of(hall, kitchen)."""

    @property
    def name(self) -> str:
        """What is said."""
        ...

    @property
    def arguments(self) -> Sequence[Named]:
        """Of what."""
        ...


def room_told(facts: Sequence[Fact]) -> str:
    """The player's room, what is in sight there, the ways out, and what is carried."""
    told = [(fact.name, *(argument.name for argument in fact.arguments)) for fact in facts]
    kinds = {argument.name: argument.type for fact in facts for argument in fact.arguments}
    room = next(f[2] for f in told if f[0] == "at" and kinds[f[1]] == "P")
    states = {f[1]: f[0] for f in told if f[0] in _STATES}
    here = sorted(f[1] for f in told if f[0] == "at" and f[2] == room and kinds[f[1]] != "P")
    lines = [f"You are in the {room}."]
    if here:
        lines.append(f"You see {_listed(_with_state(thing, states) for thing in here)}.")
    for holder in here:
        if states.get(holder, "open") == "open":
            lines += [
                f"{word} the {holder}: {_listed(held)}."
                for word, relation in (("On", "on"), ("In", "in"))
                if (held := sorted(f[1] for f in told if f[0] == relation and f[2] == holder))
            ]
    doors = {f[3]: f[2] for f in told if f[0] == "link" and f[1] == room}
    ways = [
        f"{way} to the {there}" + (f" through {_with_state(doors[there], states)}" if there in doors else "")
        for way in _WAYS
        for there in (f[1] for f in told if f[0] == f"{way}_of" and f[2] == room)
    ]
    if ways:
        lines.append(f"Ways out: {', '.join(ways)}.")
    carried = sorted(f[1] for f in told if f[0] == "in" and kinds[f[2]] == "I")
    lines.append(f"You carry {_listed(carried) or 'nothing'}.")
    return "\n".join(lines)


def _with_state(thing: str, states: dict[str, str]) -> str:
    return f"a {thing} ({states[thing]})" if thing in states else f"a {thing}"


def _listed(things: Iterable[str]) -> str:
    return ", ".join(thing if thing.startswith("a ") else f"a {thing}" for thing in things)
