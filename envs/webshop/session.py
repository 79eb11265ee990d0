"""One visit to the shop, as a state machine: pages, what is clicked on them, one purchase."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Literal

from envs.webshop import pages
from envs.webshop.actions import Action
from envs.webshop.catalogue import Catalogue, Product
from envs.webshop.goals import Goal
from envs.webshop.nouns import NounFinder
from envs.webshop.reward import Grade, grade
from envs.webshop.search import Search

_SUB_PAGES = {name.lower(): name for name in pages.SUB_PAGES}


class Session:
    """Where a shopper is and what was chosen so far; starts at the search bar.

    `price` tells the dollars of a product at the till, `rng` decides random searches.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        search: Search,
        goal: Goal,
        *,
        price: Callable[[Product], float],
        nouns: NounFinder,
        rng: random.Random,
    ) -> None:
        self.goal = goal
        self.grade: Grade | None = None  # of the purchase, once it is made
        self._catalogue = catalogue
        self._search = search
        self._price = price
        self._nouns = nouns
        self._rng = rng
        self._keywords: list[str] = []
        self._number = 1  # of the page of results
        self._product: Product | None = None  # looked at
        self._chosen: dict[str, str] = {}  # option -> value
        self._seen: set[str] = set()
        self._place: Literal["start", "results", "item", "sub page", "done"] = "start"
        self.page: pages.Page = ()
        self._start()

    @property
    def reward(self) -> float:
        """0 until something is bought."""
        return 0.0 if self.grade is None else self.grade.reward

    def act(self, action: Action | None) -> bool:
        """Do it, if it can be done on this page. False: nothing happened."""
        if action is None or self._place == "done":
            return False
        if action.verb == "search":
            self._keywords = action.argument.split(" ")
            self._show_results(1)
            return True
        target = pages.clickables(self.page).get(action.argument)
        if target is None or action.argument == pages.SEARCH.lower():
            return False
        self._click(action.argument, target)
        return True

    def _click(self, label: str, target: pages.Node) -> None:
        """Upstream goes by the label first, so an option whose value reads like a button is that button."""
        if label == pages.BUY_NOW.lower():
            self._buy()
        elif label == pages.BACK_TO_SEARCH.lower():
            self._start()
        elif label == pages.NEXT.lower() and self._place == "results":
            self._show_results(self._number + 1)
        elif label == pages.PREV.lower() and self._place == "results":
            self._show_results(self._number - 1)
        elif label == pages.PREV.lower() and self._place == "item":
            self._show_results(self._number)
        elif label in _SUB_PAGES:
            self._place = "sub page"
            self.page = pages.sub_page(self.goal.instruction, self._shown(), _SUB_PAGES[label])
        else:
            self._show_item(target)

    def _start(self) -> None:
        self._place = "start"
        self._product, self._chosen = None, {}
        self._seen.clear()
        self.page = pages.start_page(self.goal.instruction)

    def _show_results(self, number: int) -> None:
        self._place = "results"
        self._number = number
        self._product, self._chosen = None, {}
        found = self._search.find(self._keywords, self._rng)
        here = found[(number - 1) * pages.PAGE_SIZE : number * pages.PAGE_SIZE]
        products = [self._catalogue.products[place] for place in here]
        self.page = pages.results_page(self.goal.instruction, products, number, len(found), self._seen)

    def _show_item(self, target: pages.Node) -> None:
        """After a link, an option, or "< Prev" on a sub page."""
        self._place = "item"
        if target.kind == "link":
            self._product = self._catalogue.products[self._catalogue.by_asin[target.text]]
            self._seen.add(target.text)
        elif target.kind == "option":
            self._chosen[target.option] = target.text
        address = pages.item_address(self._keywords, self._number, self._chosen)
        self.page = pages.item_page(self.goal.instruction, self._shown(), address)

    def _buy(self) -> None:
        product = self._shown()
        self._place = "done"
        self.grade = grade(product, self._price(product), self._chosen, self.goal, self._nouns)
        self.page = pages.done_page(product.asin, self._chosen, self.reward)

    def _shown(self) -> Product:
        if self._product is None:
            raise RuntimeError(f"webshop: a {self._place} page offered what only a product's page has")
        return self._product
