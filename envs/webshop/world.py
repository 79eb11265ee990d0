"""WebShop as an environment of the stream."""

from __future__ import annotations

import random
from typing import Annotated, Literal

import msgspec

from envs.webshop import pages
from envs.webshop.actions import parse_action
from envs.webshop.goals import choose_goal, num_held_out
from envs.webshop.nouns import NounFinder, noun_finder
from envs.webshop.session import Session
from envs.webshop.shop import open_shop
from stream_rl.errors import ConfigError, EnvironmentFailed
from stream_rl.types import Observation, Split, StepResult, Task

ANY_SEARCH = "search[<your query>]"  # how the search bar is listed among the admissible actions


class WebShopOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[environments.options]` of this world."""

    data: str = ""  # folder with upstream's three JSON files; empty or "synthetic": a synthetic catalogue
    products: Annotated[int, msgspec.Meta(ge=0)] = 0  # first entries of the data to use; 0: all, or 120 synthetic ones
    mode: Literal["text", "rich"] = "text"  # upstream's observation modes
    nouns: str = "rule"  # finds the nouns of titles: "rule", or "spacy:<model>" as upstream does
    held_out: Annotated[int, msgspec.Meta(ge=1)] = 500  # first goals, kept for evaluation (AgentBench: 200)
    seed: int = 0  # of prices and limits that upstream draws, and of the synthetic catalogue
    max_turns: Annotated[int, msgspec.Meta(ge=0)] = 0  # the world ends the episode after this many; 0: never
    admissible: bool = True  # fill `admissible` of observations and results


class WebShop:
    """One instruction, one visit, one purchase; its reward is the score, and success is a reward of 1.

    Split and index decide the goal, so a group shares it; `seed` decides random searches only. The keywords are those
    of `WebShopOptions`; values it cannot use raise `ConfigError`. All episodes of a process share one catalogue.
    """

    def __init__(
        self,
        *,
        data: str = "",
        products: int = 0,
        mode: str = "text",
        nouns: str = "rule",
        held_out: int = 500,
        seed: int = 0,
        max_turns: int = 0,
        admissible: bool = True,
    ) -> None:
        given = {
            "data": data,
            "products": products,
            "mode": mode,
            "nouns": nouns,
            "held_out": held_out,
            "seed": seed,
            "max_turns": max_turns,
            "admissible": admissible,
        }
        try:
            self.options = msgspec.convert(given, WebShopOptions)
        except msgspec.ValidationError as error:
            raise ConfigError("environments.options", f"webshop: {given} cannot be used: {error}.") from None
        self._nouns: NounFinder = noun_finder(nouns)
        self._shop = open_shop(data, products, seed)
        self._session: Session | None = None
        self._turns = 0
        self._done = False

    def num_tasks(self, split: Split) -> int:
        """Goals of the split; higher indices begin again."""
        held_out = num_held_out(len(self._shop.goals), self.options.held_out)
        return held_out if split == "held_out" else len(self._shop.goals) - held_out

    def reset(self, task: Task, seed: int) -> Observation:
        """Begin an episode."""
        goal = choose_goal(self._shop.goals, task.split, task.index, self.options.held_out)
        self._session = Session(
            self._shop.catalogue,
            self._shop.search,
            goal,
            price=self._shop.price,
            nouns=self._nouns,
            rng=random.Random(f"webshop/{task.id}/{seed}"),
        )
        self._turns = 0
        self._done = False
        return Observation(text=self._told(self._session), admissible=self._offered())

    def step(self, action: str) -> StepResult:
        """Act. What is not understood, or is not on the page, changes nothing and is `valid=False`.

        Raises `EnvironmentFailed` when no episode has begun.
        """
        session = self._current()
        if self._done:
            return self._result(session, reward=0.0, valid=False)
        valid = session.act(parse_action(action))
        self._turns += 1
        self._done = session.grade is not None or self._turns == self.options.max_turns
        return self._result(session, reward=session.reward, valid=valid)

    def admissible(self) -> tuple[str, ...]:
        """What can be done on this page; a search can be made on every page, and is listed where there is a bar.

        Raises `EnvironmentFailed` when no episode has begun.
        """
        page = self._current().page
        searches = (ANY_SEARCH,) if pages.has_search_bar(page) else ()
        labels = [label for label in pages.clickables(page) if label != pages.SEARCH.lower()]
        return (*searches, *(f"click[{label}]" for label in labels))

    def close(self) -> None:
        """Forget the episode."""
        self._session = None

    def _result(self, session: Session, *, reward: float, valid: bool) -> StepResult:
        return StepResult(
            text=self._told(session),
            reward=reward,
            done=self._done,
            success=session.reward == 1.0,
            score=session.reward,
            valid=valid,
            admissible=() if self._done else self._offered(),
        )

    def _current(self) -> Session:
        if self._session is None:
            raise EnvironmentFailed("webshop: no episode has begun; call reset first")
        return self._session

    def _told(self, session: Session) -> str:
        return pages.plain(session.page) if self.options.mode == "text" else pages.rich(session.page)

    def _offered(self) -> tuple[str, ...]:
        return self.admissible() if self.options.admissible else ()
