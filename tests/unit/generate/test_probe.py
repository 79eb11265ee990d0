from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rl.errors import WeightsRejected
from stream_rl.generate import probe

said = st.lists(st.floats(-50, 0), min_size=16, max_size=16)


@given(st.integers(1, 300_000))
@settings(deadline=None, max_examples=50)
def test_the_prompt_is_within_the_vocabulary_and_always_the_same(vocab_size: int) -> None:
    ids = probe.prompt(vocab_size)
    assert len(ids) == 16
    assert all(0 <= token < vocab_size for token in ids)
    assert ids == probe.prompt(vocab_size)


@given(said)
@settings(deadline=None, max_examples=50)
def test_log_probabilities_pass(values: list[float]) -> None:
    assert probe.check(3, values) == tuple(values)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf"), 0.01])
def test_what_is_no_log_probability_is_refused(bad: float) -> None:
    with pytest.raises(WeightsRejected, match="version 3 gives log-probabilities such as"):
        probe.check(3, [-1.0] * 7 + [bad] + [-1.0] * 8)
