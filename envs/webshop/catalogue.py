"""What the shop sells."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property

import msgspec


class Option(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One thing to choose about a product."""

    name: str  # lower case: "color"
    values: tuple[str, ...]  # lower case, "/" written as " | "


class Product(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One product, cleaned as upstream cleans it. Strings that many products share are one object in memory."""

    asin: str  # identifier, at most 10 characters
    title: str  # as shown
    description: str  # may be empty
    bullets: tuple[str, ...]  # features, at least one, which may be empty
    prices: tuple[float, ...]  # dollars: one price, or the ends of a range
    category: str  # "beauty"
    query: str  # the search under which the product was found, lower case
    product_category: str  # path, parts separated by "›"
    attributes: tuple[str, ...]  # what instructions ask for, lower case
    options: tuple[Option, ...] = ()  # in the order of the page

    @property
    def price_tag(self) -> str:
        """The price as shown: "$12.5", or "$10.0 to $12.5"."""
        return " to ".join(f"${price}" for price in self.prices)


class Catalogue:
    """All products in the order of the data, and the ways to look them up. Read-only."""

    def __init__(self, products: Iterable[Product]) -> None:
        self.products: Sequence[Product] = tuple(products)
        self.by_asin: Mapping[str, int] = {product.asin: place for place, product in enumerate(self.products)}

    def __len__(self) -> int:
        return len(self.products)

    @cached_property
    def by_attribute(self) -> Mapping[str, Sequence[int]]:
        """Places of the products with an attribute."""
        return self._grouped(lambda product: set(product.attributes))

    @cached_property
    def by_category(self) -> Mapping[str, Sequence[int]]:
        """Places of the products of a category."""
        return self._grouped(lambda product: (product.category,))

    @cached_property
    def by_query(self) -> Mapping[str, Sequence[int]]:
        """Places of the products found under a query."""
        return self._grouped(lambda product: (product.query,))

    def _grouped(self, keys: Callable[[Product], Iterable[str]]) -> Mapping[str, Sequence[int]]:
        places: defaultdict[str, list[int]] = defaultdict(list)
        for place, product in enumerate(self.products):
            for key in keys(product):
                places[key].append(place)
        return dict(places)


def real_price(product: Product, seed: int) -> float:
    """What the product costs at the till, in dollars. Upstream draws it, unseeded, when only a range is known."""
    if len(product.prices) == 1:
        return product.prices[0]
    return random.Random(f"webshop/{seed}/price/{product.asin}").uniform(*product.prices)
