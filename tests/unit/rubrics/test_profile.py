from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_rl.rubrics.profile import hint_rubrics, profile
from stream_rl.types import TagValue
from tests.unit.records import RUBRICS, verdict


def test_rates_by_hand() -> None:
    """4 rollouts, one wholly abstained: rates are over 3. a.one: 2 positive, 1 violation; b.three: 1 violation."""
    verdicts = [
        verdict("t0", {"a.one": "positive", "b.three": "violation"}),
        verdict("t1", {"a.one": "positive"}),
        verdict("t2", {"a.one": "violation", "a.two": "abstained"}),
        verdict("t3", dict.fromkeys(RUBRICS, "abstained")),
    ]
    got = profile(verdicts, RUBRICS)
    assert got.num_tagged == 3
    assert got.positive.tolist() == pytest.approx([2 / 3, 0, 0])
    assert got.violation.tolist() == pytest.approx([1 / 3, 0, 1 / 3])
    length = np.sqrt(4 + 1 + 1) / 3
    assert got.vector.tolist() == pytest.approx([2 / 3 / length, 0, 0, 1 / 3 / length, 0, 1 / 3 / length])


def test_no_tag_is_a_zero_vector() -> None:
    assert profile([], RUBRICS).vector.tolist() == [0.0] * 6
    assert profile([verdict("t", dict.fromkeys(RUBRICS, "abstained"))], RUBRICS).num_tagged == 0


_TAGS = st.dictionaries(
    st.sampled_from(RUBRICS), st.sampled_from(["positive", "violation", "not_applicable", "abstained"])
)


@given(st.lists(_TAGS, max_size=6))
def test_order_of_rollouts_does_not_matter_and_abstaining_is_never_a_violation(
    tags: list[dict[str, TagValue]],
) -> None:
    verdicts = [verdict(f"t{i}", t) for i, t in enumerate(tags)]
    got, back = profile(verdicts, RUBRICS), profile(verdicts[::-1], RUBRICS)
    assert np.array_equal(got.vector, back.vector)
    assert ((got.positive >= 0) & (got.positive + got.violation <= 1 + 1e-12)).all()
    assert hint_rubrics(got, RUBRICS, support=1, top_k=3) == hint_rubrics(back, RUBRICS, support=1, top_k=3)
    if all(value == "abstained" for t in tags for value in t.values()):
        assert not got.violation.any()
