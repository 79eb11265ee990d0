from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rl.generate.prefix_store import PrefixStore


def entry(length: int) -> torch.Tensor:
    return torch.zeros(4, 1, length, 2)


def test_finds_the_longest_that_leaves_something_to_compute() -> None:
    store = PrefixStore(100)
    short, long = entry(2), entry(4)
    store.put([1, 2], short)
    store.put([1, 2, 3, 4], long)
    assert store.longest([1, 2, 3, 4, 5]) is long
    assert store.longest([1, 2, 3, 4]) is short  # its own last token must be computed for the logits
    assert store.longest([1, 2, 9, 9]) is short
    assert store.longest([1, 2]) is None
    assert store.longest([2, 1, 3]) is None


def test_the_least_recently_used_makes_room() -> None:
    store = PrefixStore(6)
    store.put([1, 1], entry(2))
    store.put([2, 2], entry(2))
    store.put([3, 3], entry(2))
    assert store.longest([1, 1, 0]) is not None  # used: now the youngest
    store.put([4, 4], entry(2))
    assert store.longest([2, 2, 0]) is None
    assert store.longest([1, 1, 0]) is not None


def test_clear_forgets_everything() -> None:
    store = PrefixStore(10)
    store.put([1, 1], entry(2))
    store.clear()
    assert store.longest([1, 1, 0]) is None
    assert len(store) == 0


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), max_size=30))
def test_never_holds_more_than_its_bound_and_never_a_wrong_prefix(sequences: list[list[int]]) -> None:
    store = PrefixStore(12)
    held: dict[int, list[int]] = {}
    for ids in sequences:
        one = entry(len(ids))
        held[id(one)] = ids
        store.put(ids, one)
        found = store.longest([*ids, 9])
        assert found is one
        assert sum(e.shape[2] for e in store._entries.values()) <= 12
        other = store.longest([0, 0, 0, 0, 0, 0, 0])
        assert other is None or set(held[id(other)]) == {0}
