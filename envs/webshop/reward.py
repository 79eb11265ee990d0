"""What a purchase is worth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from envs.webshop.catalogue import Product
from envs.webshop.colours import plain_colour
from envs.webshop.fuzzy import token_set_ratio
from envs.webshop.goals import Goal
from envs.webshop.nouns import NounFinder

_ALIKE = 85  # percent; more than this counts as the same


class Grade(msgspec.Struct, frozen=True, kw_only=True):
    """A purchase compared with its goal.

    >>> Grade(kind=1.0, attributes=1, options=1, price=True, wanted=4).reward
    0.75
    """

    kind: float  # 1, 0.5, 0.1 or 0: is it the right kind of thing
    attributes: int  # wanted attributes it has
    options: int  # wanted options that were chosen
    price: bool  # it costs no more than the limit
    wanted: int  # attributes and options of the goal, and one for the price

    @property
    def reward(self) -> float:
        """0 to 1; 1 is success. Upstream's `get_reward`."""
        return (self.attributes + self.options + self.price) / self.wanted * self.kind


def grade(product: Product, price: float, chosen: Mapping[str, str], goal: Goal, nouns: NounFinder) -> Grade:
    """Grade buying `product` for `price` dollars with the options `chosen` (name -> value)."""
    return Grade(
        kind=kind_factor(product, goal.product, nouns),
        attributes=sum(_has_attribute(product, wanted) for wanted in goal.attributes),
        options=_num_chosen(chosen.values(), goal.options),
        price=price <= goal.price_limit,
        wanted=len(goal.attributes) + len(goal.options) + 1,
    )


def kind_factor(bought: Product, wanted: Product, nouns: NounFinder) -> float:
    """1 if query, two parts of the category path, or a fifth of the title's nouns agree; less for foreign titles."""
    overlap = _title_overlap(nouns(bought.title), nouns(wanted.title))
    if overlap == 0.0:
        return 0.0
    if overlap < 0.1:
        return 0.1
    same_path = len(_path(bought) & _path(wanted)) >= 2
    return 1.0 if bought.query == wanted.query or same_path or overlap > 0.2 else 0.5


def _title_overlap(bought: tuple[str, ...], wanted: tuple[str, ...]) -> float:
    """Shared nouns over all nouns of the wanted title, repetitions counted below the line only, as upstream does."""
    return len(set(bought) & set(wanted)) / len(wanted) if wanted else 0.2


def _path(product: Product) -> set[str]:
    return {part.strip() for part in product.product_category.split("›")}


def _has_attribute(product: Product, wanted: str) -> bool:
    return (
        any(token_set_ratio(attribute, wanted) > _ALIKE for attribute in product.attributes)
        or wanted in product.title.lower()
        or wanted in " ".join(product.bullets).lower()
        or wanted in product.description.lower()
    )


def _num_chosen(chosen: Iterable[str], wanted: Iterable[str]) -> int:
    plain = [plain_colour(value) for value in chosen]
    return sum(any(token_set_ratio(value, plain_colour(wish)) > _ALIKE for value in plain) for wish in wanted)
