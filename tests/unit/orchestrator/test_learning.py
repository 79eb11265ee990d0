from __future__ import annotations

import pytest

from stream_rl.orchestrator.learning import attribute_waits, judge_wait, no_training
from tests.unit.records import flight


def test_judge_wait_is_the_time_in_which_only_verdicts_were_missing() -> None:
    early, late = flight("a", (True,)), flight("b", (True,))
    early.produced_s, early.judged_s = 1.0, 2.0
    late.produced_s, late.judged_s = 5.0, 9.0
    assert judge_wait([early, late], idle_since_s=0.0) == 4.0  # 5 to 9
    assert judge_wait([early, late], idle_since_s=7.0) == 2.0  # 7 to 9
    assert judge_wait([early, late], idle_since_s=10.0) == 0.0


def test_attribution_keeps_the_sum() -> None:
    parts = {"rollout_wait_s": 10.0, "judge_wait_s": 0.0, "train_s": 3.0, "other_s": 1.0}
    found = {"evaluation_s": 3.0, "paused_s": 1.5, "startup_s": 0.5}
    out, others = attribute_waits(parts, judge_wait_s=2.0, no_training_s=found)
    assert out == {"rollout_wait_s": 3.0, "judge_wait_s": 2.0, "train_s": 3.0, "other_s": 6.0}
    assert others == found
    assert sum(out.values()) == pytest.approx(sum(parts.values()))


def test_no_part_becomes_negative() -> None:
    found = {"evaluation_s": 9.0, "paused_s": 9.0, "startup_s": -0.001}
    out, others = attribute_waits({"rollout_wait_s": 1.0}, judge_wait_s=9.0, no_training_s=found)
    assert out == {"rollout_wait_s": 0.0, "judge_wait_s": 0.0, "other_s": 1.0}
    assert others == {"evaluation_s": 1.0, "paused_s": 0.0, "startup_s": 0.0}


def test_what_was_no_training_is_told_by_phase() -> None:
    before = {"starting": 4.0, "training": 10.0, "evaluating": 2.0, "paused": 0.0, "stopping": 0.0}
    now = {"starting": 4.0, "training": 17.0, "evaluating": 5.0, "paused": 1.0, "stopping": 0.0}
    assert no_training(before, now) == {"evaluation_s": 3.0, "paused_s": 1.0, "startup_s": 0.0}
