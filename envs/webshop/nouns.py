"""Nouns of a product's title, by a rule or by a spaCy model."""

from __future__ import annotations

import importlib
import logging
import re
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

from stream_rl.errors import ConfigError

NounFinder = Callable[[str], tuple[str, ...]]  # title -> its nouns in order, lower case, repetitions kept

log = logging.getLogger(__name__)

_WORD = re.compile(r"[^\W_]*[^\W\d_][^\W_]*")  # holds a letter; hyphens and apostrophes end it, as in spaCy
_NOUN_TAGS = ("NOUN", "PROPN")
_REMEMBERED = 1 << 16

# In a title nearly every word is capitalised and tagged a noun; these never are.
_FUNCTION_TEXT = """
a about above across after against all along also although am among an and any are around as at be because been
before behind below beneath beside between beyond both but by can could did do does during each either every
few for from had has have he her hers him his how i if in inside into is it its just less may me might more most
much must my near neither no nor not of off on once only onto or other our out outside over own per plus same she
should since so some such than that the their them then there these they this those through to too toward under
until up upon us very via was we were what when where which while who whose why will with within without would
yet you your s
"""
_FUNCTION_WORDS = frozenset(_FUNCTION_TEXT.split())


def by_rule(title: str) -> tuple[str, ...]:
    """Every word but function words: what a tagger mostly answers for a title.

    >>> by_rule("Acme T-Shirt, Slim Fit for Men")
    ('acme', 't', 'shirt', 'slim', 'fit', 'men')
    """
    return tuple(word for word in _WORD.findall(title.lower()) if word not in _FUNCTION_WORDS)


@cache
def noun_finder(spec: str) -> NounFinder:
    """ "rule", or "spacy:<model>" for an installed model; made once a process, and the log says which.

    Raises `ConfigError` for another word, or when spaCy or the model is not installed.
    """
    find: NounFinder
    if spec == "rule":
        find = by_rule
    elif spec.startswith("spacy:") and len(spec) > len("spacy:"):
        find = _by_spacy(spec.removeprefix("spacy:"))
    else:
        raise ConfigError(
            "environments.options.nouns", f'webshop: {spec!r} is no noun finder; use "rule" or "spacy:<model>".'
        )
    log.info("webshop: nouns of titles are found by %s", spec)
    return lru_cache(maxsize=_REMEMBERED)(find)


def _by_spacy(model: str) -> NounFinder:
    try:
        spacy: Any = importlib.import_module("spacy")
        tagger: Any = spacy.load(model)
    except (ImportError, OSError) as error:
        raise ConfigError(
            "environments.options.nouns",
            f"webshop: the spaCy model {model!r} cannot be loaded ({error}); install spaCy with pip install "
            f"'stream-rl[webshop]' and the model with python -m spacy download {model}, or use nouns = \"rule\".",
        ) from error

    def find(title: str) -> tuple[str, ...]:
        return tuple(token.text.lower() for token in tagger(title) if token.pos_ in _NOUN_TAGS)

    return find
