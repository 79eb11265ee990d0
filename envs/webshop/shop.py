"""One shop of a process: catalogue, search and goals, shared by all its episodes and never changed."""

from __future__ import annotations

from functools import lru_cache

from envs.webshop.catalogue import Catalogue, Product, real_price
from envs.webshop.data import RawData, build_catalogue, read_data
from envs.webshop.goals import Goal, build_goals
from envs.webshop.search import Search
from envs.webshop.synthetic import synthetic_data
from stream_rl.errors import ConfigError

SYNTHETIC = "synthetic"  # in place of a folder: a catalogue made from the seed
SYNTHETIC_PRODUCTS = 120


class Shop:
    """Everything an episode reads. `seed` decides prices and limits that upstream leaves to chance."""

    def __init__(self, raw: RawData, seed: int, limit: int | None = None) -> None:
        """`limit`: use only the first so many entries of the data."""
        self.catalogue: Catalogue = build_catalogue(raw, limit)
        self.search: Search = Search(self.catalogue)
        self.goals: tuple[Goal, ...] = build_goals(self.catalogue, raw.instructions, seed)
        self._seed = seed

    def price(self, product: Product) -> float:
        """What a product costs at the till, in dollars."""
        return real_price(product, self._seed)


@lru_cache(maxsize=2)
def open_shop(data: str, products: int, seed: int) -> Shop:
    """The shop over the folder `data`; empty or "synthetic": a synthetic one. Made once a process.

    `products`: entries used, 0 for all, or for 120 synthetic ones. Raises `ConfigError` for data without two goals.
    """
    if data and data != SYNTHETIC:
        shop = Shop(read_data(data), seed, products or None)
    else:
        shop = Shop(synthetic_data(products or SYNTHETIC_PRODUCTS, seed), seed)
    if len(shop.goals) < 2:
        raise ConfigError(
            "environments.options",
            f"webshop: {len(shop.catalogue)} products of {data or SYNTHETIC!r} have "
            f"{len(shop.goals)} goals, and at least 2 are needed: one to train on, one to evaluate.",
        )
    return shop
