from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from learner.weights.buckets import buckets


@settings(deadline=None, max_examples=200)
@given(st.lists(st.integers(0, 50), max_size=30), st.integers(1, 60))
def test_runs_cover_everything_in_order_and_stay_within_the_limit(sizes: list[int], limit: int) -> None:
    runs = list(buckets(sizes, limit))
    assert [i for run in runs for i in run] == list(range(len(sizes)))
    for run in runs:
        assert len(run) == 1 or sum(sizes[i] for i in run) <= limit
    for first, second in pairwise(runs):
        assert sum(sizes[i] for i in first) + sizes[second[0]] > limit, "two runs could have been one collective"
