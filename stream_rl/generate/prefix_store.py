"""Keys and values of sequences that were computed before, found again by their token ids."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence

import numpy as np
import torch


class PrefixStore:
    """Least recently used first out, bounded in tokens. Every entry is one whole sequence of ids.

    Entries are [2 * layers, heads, tokens, head size]: keys and values of each layer in turn. They belong to one set
    of weights; whoever changes the weights calls `clear`.
    """

    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._num_tokens = 0
        self._entries: OrderedDict[bytes, torch.Tensor] = OrderedDict()
        self._lengths: Counter[int] = Counter()  # in tokens, of the entries

    def __len__(self) -> int:
        return len(self._entries)

    def longest(self, ids: Sequence[int]) -> torch.Tensor | None:
        """The longest entry whose ids begin `ids` and leave at least one token of it to compute."""
        key = _key(ids)
        item = np.dtype(np.int32).itemsize
        for length in sorted(self._lengths, reverse=True):
            if length < len(ids):
                found = self._entries.get(key[: length * item])
                if found is not None:
                    self._entries.move_to_end(key[: length * item])
                    return found
        return None

    def put(self, ids: Sequence[int], entry: torch.Tensor) -> None:
        """Keep the keys and values of these ids; the oldest entries make room."""
        self._drop(_key(ids))
        self._entries[_key(ids)] = entry
        self._lengths[len(ids)] += 1
        self._num_tokens += len(ids)
        while self._num_tokens > self._max_tokens:
            self._drop(next(iter(self._entries)))

    def clear(self) -> None:
        """Forget everything: the weights changed."""
        self._entries.clear()
        self._lengths.clear()
        self._num_tokens = 0

    def _drop(self, key: bytes) -> None:
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        length = entry.shape[2]
        self._num_tokens -= length
        self._lengths[length] -= 1
        if not self._lengths[length]:
            del self._lengths[length]


def _key(ids: Sequence[int]) -> bytes:
    return np.asarray(ids, dtype=np.int32).tobytes()
