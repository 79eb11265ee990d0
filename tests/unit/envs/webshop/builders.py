"""A small shop made by hand, and upstream's recordings where they are."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from envs.webshop.actions import parse_action
from envs.webshop.catalogue import Catalogue, Option, Product
from envs.webshop.goals import Goal
from envs.webshop.nouns import by_rule
from envs.webshop.search import Search
from envs.webshop.session import Session

RECORDED = Path(__file__).parents[5] / "shared" / "data" / "webshop"
needs_recordings = pytest.mark.skipif(
    not RECORDED.is_dir(), reason="upstream's recordings are not beside the project, in ../shared/data/webshop"
)

COLOUR = Option(name="color", values=("red", "navy blue"))
SIZE = Option(name="size", values=("small", "large"))


def product(asin: str = "B000000001", **changes: Any) -> Product:
    given: dict[str, Any] = {
        "asin": asin,
        "title": "Acme Wool Scarf",
        "description": "A scarf.",
        "bullets": ("Warm ", "Soft"),
        "prices": (12.5,),
        "category": "fashion",
        "query": "scarves",
        "product_category": "Clothing › Women › Scarves",
        "attributes": ("machine washable",),
        "options": (COLOUR, SIZE),
    }
    return Product(**(given | changes))


SCARF = product()
GOAL = Goal(
    instruction="find a washable scarf in red, and price lower than 30.00 dollars",
    product=SCARF,
    attributes=("machine washable",),
    options=("red",),
    price_limit=30.0,
)


def session(*products: Product, goal: Goal = GOAL) -> Session:
    catalogue = Catalogue(products or (SCARF,))
    return Session(
        catalogue,
        Search(catalogue),
        goal,
        price=lambda bought: bought.prices[0],
        nouns=by_rule,
        rng=random.Random(0),
    )


def walk(shopper: Session, *actions: str) -> Session:
    for action in actions:
        assert shopper.act(parse_action(action)), action
    return shopper
