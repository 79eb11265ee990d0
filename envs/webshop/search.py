"""What a search finds: full text, or one of upstream's four special searches."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import lru_cache

from envs.webshop.bm25 import Index
from envs.webshop.catalogue import Catalogue, Product

MOST_RESULTS = 50  # of a full-text or random search; the others are not cut
_REMEMBERED = 4096  # queries: pages of one search, and members of one group, ask the same


class Search:
    """The search of one catalogue. Places are positions in `Catalogue.products`."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self.index = Index(_documents(catalogue.products), [product.asin for product in catalogue.products])
        self._best = lru_cache(maxsize=_REMEMBERED)(lambda text: self.index.search(text, MOST_RESULTS))

    def find(self, keywords: Sequence[str], rng: random.Random) -> Sequence[int]:
        """Places of the products found, best first; `keywords` are the words of the query, at least one.

        "<r>" finds random products, "<a> x" those with the attribute x, "<c> x" those of the category x, "<q> x"
        those upstream found under the query x.
        """
        rest = " ".join(keywords[1:]).strip()
        match keywords[0]:
            case "<r>":
                everything = range(len(self._catalogue))
                return rng.sample(everything, min(MOST_RESULTS, len(everything)))
            case "<a>":
                return self._catalogue.by_attribute.get(rest, ())
            case "<c>":
                return self._catalogue.by_category.get(keywords[1].strip() if len(keywords) > 1 else "", ())
            case "<q>":
                return self._catalogue.by_query.get(rest, ())
        return self._best(" ".join(keywords))


def _documents(products: Sequence[Product]) -> Iterator[str]:
    """The text a product is found by."""
    for product in products:
        options = ", and ".join(f"{option.name}: {', '.join(option.values)}" for option in product.options)
        yield f"{product.title} {product.description} {product.bullets[0]} {options}".lower()
