from __future__ import annotations

import math

import pytest

from stream_rl.orchestrator.evaluation import Evaluation
from stream_rl.orchestrator.tasks import evaluation_tasks
from stream_rl.types import Trajectory
from tests.unit.records import trajectory


def _result(evaluation: Evaluation, group_id: str, outcomes: tuple[bool, ...]) -> None:
    for member, success in enumerate(outcomes):
        t = trajectory(group_id, member, success=success, split="held_out")
        record: Trajectory = Trajectory(
            **{f: getattr(t, f) for f in t.__struct_fields__ if f != "task"}, task=evaluation.task(group_id)
        )
        evaluation.add(record)


def test_overall_is_the_plain_mean_of_environments_and_errors_are_clustered_by_task() -> None:
    """x: tasks (1,1) and (0,0): mean 0.5; y: (1,0) and (1,0): 0.5.

    Clustered error of x: deviations of task sums are +1 and -1: sqrt(2 * 2 / 1) / 4 = 0.5; of y: 0.
    Overall error: sqrt(0.25 + 0) / 2 = 0.25.
    """
    evaluation = Evaluation(4, evaluation_tasks(("x", "y"), 2), 2)
    ids = list(evaluation.waiting)
    for group_id, outcomes in zip(ids, ((True, True), (False, False), (True, False), (True, False)), strict=True):
        _result(evaluation, group_id, outcomes)
    summary = evaluation.summary()
    assert summary["success"] == {"overall": 0.5, "by_env": {"x": 0.5, "y": 0.5}}
    assert math.isclose(summary["stderr"], 0.25)
    assert summary["valid"] == 8


def test_a_lost_producer_means_the_task_is_rolled_out_again_and_counted_once() -> None:
    evaluation = Evaluation(0, evaluation_tasks(("x",), 1), 2)
    group_id = evaluation.waiting.popleft()
    evaluation.running.add(group_id)
    _result(evaluation, group_id, (True,))
    evaluation.lost(group_id)
    assert not evaluation.done
    assert list(evaluation.waiting) == [group_id]
    evaluation.waiting.clear()
    _result(evaluation, group_id, (False, False))
    assert evaluation.summary()["success"]["overall"] == pytest.approx(0.0)
    assert evaluation.summary()["valid"] == 2


def test_nothing_valid_is_none_and_not_zero() -> None:
    evaluation = Evaluation(0, evaluation_tasks(("x",), 1), 1)
    group_id = next(iter(evaluation.waiting))
    evaluation.add(trajectory(group_id, 0, error="the world broke"))
    summary = evaluation.summary()
    assert summary["success"]["overall"] is None
    assert summary["invalid"] == 1
