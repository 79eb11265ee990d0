"""Full-text search with the scores of Lucene's BM25 (k1 0.9, b 0.4), on flat arrays.

score(d) = sum over query terms of idf * (1 - 1 / (1 + tf / (k1 (1 - b + b length / mean length)))), computed in 32 bits
per term and summed in 64, as Lucene does; lengths are rounded to the 256 values of its one-byte code. Legend for
suffixes: d documents, p postings, t terms.
"""

from __future__ import annotations

import itertools
import math
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from envs.webshop import analysis

K1, B = np.float32(0.9), np.float32(0.4)
_NUM_EXACT = 24  # lengths below this are stored as they are

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int32]


def rounded_length(length: int) -> int:
    """A document's length after Lucene's one-byte code: exact below 40, then with four significant bits.

    >>> rounded_length(39), rounded_length(41), rounded_length(100)
    (39, 40, 96)
    """
    rest = length - _NUM_EXACT
    if rest < 0:
        return length
    shift = max(rest.bit_length() - 4, 0)
    return _NUM_EXACT + (rest >> shift << shift)


class Index:
    """Documents by their terms. Read-only, about 8 bytes a posting."""

    def __init__(self, documents: Iterable[str], names: Sequence[str]) -> None:
        """`names`, one a document, break ties: the smaller comes first."""
        numbers = _TermNumbers()
        posting_docs_p, posting_terms_p, counts_p = array("i"), array("i"), array("i")
        lengths_d = array("i")
        for place, text in enumerate(documents):
            counts = Counter(map(numbers.__getitem__, analysis.words(text)))
            counts.pop(_TermNumbers.NONE, None)
            posting_docs_p.extend(itertools.repeat(place, len(counts)))
            posting_terms_p.extend(counts.keys())
            counts_p.extend(counts.values())
            lengths_d.append(counts.total())
        self._numbers_t = numbers.terms
        self._num_docs = len(lengths_d)
        self._rank_d = np.empty(self._num_docs, np.int32)
        self._rank_d[sorted(range(self._num_docs), key=names.__getitem__)] = np.arange(self._num_docs, dtype=np.int32)

        terms_p = _view(posting_terms_p)
        order_p = np.argsort(terms_p, kind="stable")
        sizes_t = np.bincount(terms_p, minlength=len(self._numbers_t))
        self._starts_t = np.concatenate(([0], np.cumsum(sizes_t)))
        self._docs_p: IntArray = _view(posting_docs_p)[order_p]
        norms_d = _norms(lengths_d)
        self._denominators_p: FloatArray = (
            np.float32(1) + _view(counts_p)[order_p].astype(np.float32) * norms_d[self._docs_p]
        )
        num_filled = sum(length > 0 for length in lengths_d)
        self._idf_t = np.array([_idf(num_filled, int(size)) for size in sizes_t], np.float32)

    @property
    def num_bytes(self) -> int:
        """Memory of the arrays."""
        arrays = (self._rank_d, self._starts_t, self._docs_p, self._denominators_p, self._idf_t)
        return sum(each.nbytes for each in arrays)

    def search(self, query: str, top: int) -> list[int]:
        """Places of the best `top` documents that share a term with the query, best first."""
        scores_d = np.zeros(self._num_docs, np.float64)
        for term, count in Counter(analysis.terms(query)).items():
            number = self._numbers_t.get(term)
            if number is None:
                continue
            postings = slice(self._starts_t[number], self._starts_t[number + 1])
            weight = np.float32(count) * self._idf_t[number]
            scores_d[self._docs_p[postings]] += weight - weight / self._denominators_p[postings]
        found = np.flatnonzero(scores_d)
        scores = scores_d[found].astype(np.float32)
        if len(found) > top:
            enough = scores >= np.partition(scores, len(scores) - top)[len(scores) - top]
            found, scores = found[enough], scores[enough]
        best: list[int] = found[np.lexsort((self._rank_d[found], -scores))[:top]].tolist()
        return best


class _TermNumbers(dict[str, int]):
    """Word -> number of its term, assigned at first sight; `NONE` for words that are no terms."""

    NONE = -1

    def __init__(self) -> None:
        super().__init__()
        self.terms: dict[str, int] = {}

    def __missing__(self, word: str) -> int:
        # A word past Lucene's limit is several terms there and its first one here: nothing sold has such a word.
        found = next(analysis.terms(word), None)
        number = self.NONE if found is None else self.terms.setdefault(found, len(self.terms))
        self[word] = number
        return number


def _norms(lengths_d: Sequence[int]) -> FloatArray:
    """1 / (k1 (1 - b + b length / mean)) of each document; the mean is over documents with any term."""
    total, filled = sum(lengths_d), sum(length > 0 for length in lengths_d)
    mean = np.float32(total / filled) if filled else np.float32(1)
    rounded_d = np.array([rounded_length(length) for length in lengths_d], np.float32)
    norms_d: FloatArray = np.float32(1) / (K1 * ((np.float32(1) - B) + B * rounded_d / mean))
    return norms_d


def _idf(num_docs: int, containing: int) -> float:
    return math.log(1 + (num_docs - containing + 0.5) / (containing + 0.5))


def _view(values: array[int]) -> IntArray:
    return np.frombuffer(values, np.int32) if values else np.empty(0, np.int32)
