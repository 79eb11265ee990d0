from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rl.observe.progress import Evaluated, evaluations, gain, rate, seconds_to
from tests.unit.observe.samples import eval_record


def point(train_s: float, success: float, stderr: float = 0.02) -> Evaluated:
    return Evaluated(version=int(train_s), train_s=train_s, success=success, stderr=stderr)


def test_intervals_are_196_standard_errors_within_zero_and_one() -> None:
    inside = rate(point(0, 0.5))
    assert (inside.low, inside.high) == pytest.approx((0.4608, 0.5392))
    assert rate(point(0, 0.01)).low == 0.0
    assert rate(point(0, 0.99)).high == 1.0


def test_gain_adds_the_variances() -> None:
    # sqrt(0.03^2 + 0.04^2) = 0.05; 1.96 * 0.05 = 0.098
    change = gain(point(0, 0.2, 0.03), point(10, 0.6, 0.04))
    assert (change.value, change.low, change.high) == pytest.approx((0.4, 0.302, 0.498))


def test_a_threshold_is_interpolated_between_evaluations() -> None:
    # 0.2 at 0 s, 0.4 at 20 s, 0.8 at 40 s: 0.5 is a quarter of the way from 0.4 to 0.8.
    points = [point(0, 0.2), point(20, 0.4), point(40, 0.8)]
    assert seconds_to(points, 0.5) == pytest.approx(25.0)
    assert seconds_to(points, 0.9) is None
    assert seconds_to([], 0.5) is None


def test_a_threshold_reached_at_the_start_counts_from_the_first_evaluation() -> None:
    assert seconds_to([point(0, 0.7)], 0.6) == 0


def test_the_first_crossing_counts() -> None:
    assert seconds_to([point(0, 0.0), point(10, 1.0), point(20, 0.0), point(30, 1.0)], 0.5) == 5.0


def test_an_evaluation_made_again_replaces_the_older_and_one_without_a_valid_rollout_is_left_out() -> None:
    records = [
        eval_record(10, train_s=50, success=0.3),
        eval_record(0, train_s=0, success=0.2),
        eval_record(10, train_s=60, success=0.4),
        eval_record(20, train_s=90, success=None, stderr=None),
    ]
    assert [(p.version, p.train_s, p.success) for p in evaluations(records)] == [(0, 0.0, 0.2), (10, 60.0, 0.4)]


@settings(deadline=None, max_examples=100)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=10), st.floats(0, 1))
def test_the_time_lies_within_the_run_exactly_when_the_threshold_was_reached(
    successes: list[float], threshold: float
) -> None:
    points = [point(float(i), success) for i, success in enumerate(successes)]
    seconds = seconds_to(points, threshold)
    assert (seconds is not None) == (max(successes) >= threshold)
    if seconds is not None:
        assert 0 <= seconds <= len(points) - 1
