"""Text to search terms, as Lucene's English analysis does it: words, possessives, stop words, stems.

Words follow Unicode's word boundaries (UAX #29) for the scripts of the data: letters, digits and "_" hold together; so
do letters around "'", "." or ":", and digits around "'", ".", "," or ";"; ideographs and hiragana stand alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from envs.webshop.porter import stem

_ENGLISH = """
a an and are as at be but by for if in into is it no not of on or such that the their then there these they this
to was will with
"""
STOP_WORDS = frozenset(_ENGLISH.split())  # Lucene's English set
_LONGEST_WORD = 255  # Lucene cuts longer ones

_ALONE = "\u3040-\u309f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_NO_WORD = "\u00b2\u00b3\u00b9\u00bc-\u00be\u2070-\u209c\u2150-\u215f\u2460-\u249b"  # Python's \w, not Unicode's words
_PART = rf"[^\W{_ALONE}{_NO_WORD}][\u0300-\u036f\u00ad\u200d]*"
_LETTER = rf"[^\W\d_{_ALONE}{_NO_WORD}]"
_APOSTROPHES = "'\u2018\u2019\u2024\ufe52\uff07\uff0e."
_WORD = re.compile(
    rf"[{_ALONE}]|(?:{_PART})+"
    rf"(?:(?:(?<={_LETTER})[{_APOSTROPHES}:\u00b7\u0387\u2027](?={_LETTER})|(?<=\d)[{_APOSTROPHES},;](?=\d))(?:{_PART})+)*"
)
_ASCII_WORD = re.compile(r"\w+(?:(?:(?<=[a-zA-Z])['.:](?=[a-zA-Z])|(?<=\d)['.,;](?=\d))\w+)*")


def words(text: str) -> list[str]:
    """The words of a text, in order."""
    return (_ASCII_WORD if text.isascii() else _WORD).findall(text)


@lru_cache(maxsize=65536)
def term(word: str) -> str | None:
    """The search term of one word of at most 255 characters; None for a stop word or underscores only."""
    word = word.lower()
    if word.endswith(("'s", "\u2019s", "\uff07s")):
        word = word[:-2]
    if word in STOP_WORDS or not word.strip("_"):
        return None
    return stem(word)


def terms(text: str) -> Iterator[str]:
    """Search terms of a text, in order, repetitions kept.

    >>> list(terms("the women's running shoes, 13.5 wide"))
    ['women', 'run', 'shoe', '13.5', 'wide']
    """
    for word in words(text):
        for start in range(0, len(word), _LONGEST_WORD):
            found = term(word[start : start + _LONGEST_WORD])
            if found is not None:
                yield found
