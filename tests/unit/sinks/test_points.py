from __future__ import annotations

import math

from stream_rl.sinks.points import point_of
from tests.unit.observe.samples import ALARM, eval_record, metrics_line


def test_an_update_becomes_its_numbers_by_path() -> None:
    point = point_of({"type": "update", **metrics_line(3, train_s=16.0, alarms=["entropy"])})
    assert point is not None
    assert (point.step, point.held_out) == (3, False)
    assert point.scalars["success/train"] == 0.25
    assert point.scalars["learner/rollout_wait_s"] == 1.0
    assert point.scalars["lag/histogram/1"] == 8.0
    assert point.scalars["roles/producer-0/generate"] == 3.0
    assert point.scalars["train_s"] == 16.0
    assert point.scalars["alarms"] == 1.0
    assert "step" not in point.scalars
    assert point.record == metrics_line(3, train_s=16.0, alarms=["entropy"])


def test_an_evaluation_stands_apart_from_training() -> None:
    point = point_of({"type": "eval", **eval_record(10, train_s=40.0, success=0.5)})
    assert point is not None
    assert (point.step, point.held_out) == (10, True)
    assert point.scalars["eval/success/overall"] == 0.5
    assert point.scalars["eval/stderr"] == 0.02
    assert all(name.startswith("eval/") for name in point.scalars)


def test_what_was_not_measured_is_no_number() -> None:
    line = {"step": 0, "loss": None, "entropy": math.nan, "grad_norm": math.inf, "ok": True, "reward_mean": 0}
    point = point_of({"type": "update", **line})
    assert point is not None
    assert point.scalars == {"reward_mean": 0.0}


def test_other_events_are_no_points() -> None:
    assert point_of(ALARM) is None
    assert point_of({"type": "phase", "phase": "training"}) is None
    assert point_of({"type": "update"}) is None
