from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rl.observe.learner_time import PARTS, learner_time, learner_times
from tests.unit.observe.samples import metrics_line

SECONDS = st.floats(min_value=0, max_value=1000)


def test_an_update_without_a_pause_keeps_its_parts() -> None:
    time = learner_time(metrics_line(1, train_s=8.0), train_s_before=4.0)
    assert time.evaluation_s == time.startup_s == 0
    assert time.train_s == 4.0
    assert time.wait_share == 0.25


def test_evaluation_is_taken_out_of_other() -> None:
    # 34 s by the learner's clock, 4 s by the training clock: 30 s of evaluation stand in other_s.
    line = metrics_line(1, train_s=8.0)
    line["learner"] |= {"other_s": 30.25, "total_s": 34.0}
    time = learner_time(line, train_s_before=4.0)
    assert time.evaluation_s == 30.0
    assert time.parts["other"] == 0.25
    assert time.train_s == 4.0


def test_starting_producers_are_taken_out_of_the_wait() -> None:
    line = metrics_line(0, train_s=4.0)
    line["learner"] |= {"rollout_wait_s": 21.0, "total_s": 24.0}
    (time,) = learner_times([line])
    # Of 20 idle seconds, 0.15 s of other_s that is neither unpacking nor a checkpoint may be evaluation.
    assert time.evaluation_s == pytest.approx(0.15)
    assert time.startup_s == pytest.approx(19.85)
    assert time.parts["rollout_wait"] == pytest.approx(1.15)


def test_a_line_that_names_what_was_no_training_is_taken_at_its_word() -> None:
    """12 s by the learner's clock, of which 8.25 are in other_s: 5 evaluation, 1 starting, 2 paused, 0.25 itself."""
    line = metrics_line(1, train_s=8.0)
    line["learner"] |= {"other_s": 8.25, "total_s": 12.0}
    line["learner_other"] |= {"evaluation_s": 5.0, "startup_s": 1.0, "paused_s": 2.0}
    for before in (4.0, None):
        time = learner_time(line, train_s_before=before)
        assert (time.evaluation_s, time.startup_s, time.paused_s) == (5.0, 1.0, 2.0)
        assert time.parts["other"] == 0.25
        assert time.parts["rollout_wait"] == 1.0
        assert time.train_s == 4.0


def test_without_the_training_clock_nothing_is_taken_out() -> None:
    assert learner_time(metrics_line(5, train_s=400.0), None).train_s == 4.0


@settings(deadline=None, max_examples=100)
@given(st.lists(SECONDS, min_size=len(PARTS), max_size=len(PARTS)), SECONDS, SECONDS)
def test_no_second_is_lost(seconds: list[float], now: float, before: float) -> None:
    line = metrics_line(3, train_s=now, learner_other={})
    line["learner"] = {f"{part}_s": value for part, value in zip(PARTS, seconds, strict=True)}
    time = learner_time(line, before)
    assert time.train_s + time.evaluation_s + time.startup_s == pytest.approx(sum(seconds))
    assert min([*time.parts.values(), time.evaluation_s, time.startup_s]) >= 0
