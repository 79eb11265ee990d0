"""A shopper that searches for its instruction, takes the first product it can afford, and chooses what it was told."""

from __future__ import annotations

import random
import re

from envs.webshop import pages

_MARKED = re.compile(r"\[(?:clicked )?button\] (.*) \[(?:clicked )?button_\]")  # in rich mode
_LIMIT = re.compile(r", and price lower than ([\d.]+) dollars")
_RESULTS = re.compile(r"Page \d+ \(Total results: \d+\)")


class Player:
    """Plays one episode from what it is shown, in either mode: `act`, tell the world, `observe` its answer."""

    def __init__(self, first_observation: str, rng: random.Random) -> None:
        self._nodes = _nodes(first_observation)
        instruction = self._nodes[self._nodes.index("Instruction:") + 1]
        limit = _LIMIT.search(instruction)
        self._limit = float(limit.group(1)) if limit else float("inf")
        self._wish = _LIMIT.sub("", instruction)
        self._tried: set[str] = set()  # options clicked

    def observe(self, action: str, answer: str) -> None:
        """Take in the world's answer to the last action."""
        self._tried.add(action)
        self._nodes = _nodes(answer)

    def act(self) -> str:
        """The next action."""
        if pages.BUY_NOW in self._nodes:
            return self._choose()
        if any(map(_RESULTS.fullmatch, self._nodes)):
            return self._open()
        return f"search[{self._wish}]"

    def _open(self) -> str:
        """The first affordable product of the page, or its first; random ones when nothing was found."""
        shown = self._nodes[self._nodes.index(pages.NEXT) + 1 :]
        offers = list(zip(shown[::3], shown[2::3], strict=True))
        if not offers:
            return "search[<r>]"
        affordable = (asin for asin, price in offers if float(price.split(" to ")[-1].lstrip("$")) <= self._limit)
        return f"click[{next(affordable, offers[0][0])}]"

    def _choose(self) -> str:
        """An option value that the instruction names and that was not clicked yet; when there is none, buy."""
        offered = self._nodes[self._nodes.index(pages.PREV) + 1 : self._nodes.index(pages.BUY_NOW)]
        for value in sorted(offered, key=len, reverse=True):
            named = re.search(rf"(?<![\w-]){re.escape(value)}(?![\w-])", self._wish)
            if named and f"click[{value}]" not in self._tried:
                return f"click[{value}]"
        return f"click[{pages.BUY_NOW}]"


def _nodes(observation: str) -> list[str]:
    separator = " [SEP] " if " [SEP] " in observation else "\n"
    texts = (_MARKED.sub(r"\1", text).strip() for text in observation.split(separator))
    return [text for text in texts if text]
