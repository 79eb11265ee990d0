"""The two commands of a shopper: `search[words]` and `click[label]`."""

from __future__ import annotations

from typing import Literal, NamedTuple

LONGEST_ACTION = 10_000  # characters; no button is that long and no search needs it


class Action(NamedTuple):
    """A command that is well formed; whether it can be done depends on the page."""

    verb: Literal["search", "click"]
    argument: str  # lower case, not empty


def parse_action(text: str) -> Action | None:
    """The command in `text`, or None.

    Reads what upstream's pattern `(.+)\\[(.+)\\]` reads at the start of a text, in linear time: on the first line, the
    name before the last bracket that can open an argument, the argument up to the last closing bracket.

    >>> parse_action("search[Red Shoes]"), parse_action("Search[red shoes]")
    (Action(verb='search', argument='red shoes'), None)
    """
    if len(text) > LONGEST_ACTION:
        return None
    line = text.split("\n", 1)[0]
    close = line.rfind("]")
    start = line.rfind("[", 1, max(close - 1, 1))
    if start < 0:
        return None
    argument = line[start + 1 : close].lower()
    match line[:start]:
        case "search":
            return Action("search", argument)
        case "click":
            return Action("click", argument)
    return None
