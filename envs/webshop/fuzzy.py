"""How alike two short texts are, as thefuzz measures it.

The measure of its `token_set_ratio`: words in common count once and for both sides, order and repetition count for
nothing, and what is left is compared by its longest common subsequence.
"""

from __future__ import annotations

import re
from functools import lru_cache

_LATIN_1 = dict.fromkeys(range(128, 256))  # thefuzz drops these, and only these, as "not ASCII"
_SEPARATORS = re.compile(r"\W")


@lru_cache(maxsize=65536)
def token_set_ratio(left: str, right: str) -> int:
    """Likeness in percent, 0 to 100, rounded to the nearest integer; 0 when a side has no word.

    >>> token_set_ratio("non gmo", "gluten free, NON-GMO")
    100
    """
    a, b = _words(left), _words(right)
    if not a or not b:
        return 0
    common = " ".join(sorted(a & b))
    only_a, only_b = " ".join(sorted(a - b)), " ".join(sorted(b - a))
    if common and not (only_a and only_b):
        return 100
    full_a, full_b = f"{common} {only_a}".strip(), f"{common} {only_b}".strip()
    best = _likeness(full_a, full_b)
    if common:
        best = max(best, _likeness(common, full_a), _likeness(common, full_b))
    return round(best)


def _words(text: str) -> frozenset[str]:
    return frozenset(_SEPARATORS.sub(" ", text.translate(_LATIN_1)).lower().split())


def _likeness(a: str, b: str) -> float:
    """Twice the common subsequence over both lengths, in percent, as rapidfuzz rounds it."""
    total = len(a) + len(b)
    return 100.0 - 100.0 * (total - 2 * common_subsequence(a, b)) / total


def common_subsequence(a: str, b: str) -> int:
    """Length of the longest common subsequence, bit-parallel over `a` (Hyyrö, 2004)."""
    places: dict[str, int] = {}
    for place, letter in enumerate(a):
        places[letter] = places.get(letter, 0) | 1 << place
    everything = (1 << len(a)) - 1
    free = everything  # bit k is clear where the best of a[:k + 1] ends one longer
    for letter in b:
        matched = free & places.get(letter, 0)
        free = ((free + matched) | (free - matched)) & everything
    return len(a) - free.bit_count()
