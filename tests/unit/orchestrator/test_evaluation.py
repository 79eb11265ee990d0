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
    facts = summary["by_env"]["x"]
    assert (facts["success"], facts["tasks"], facts["valid"], facts["invalid"]) == (0.5, 2, 4, 0)
    assert math.isclose(facts["stderr"], 0.5)
    assert summary["by_env"]["y"]["stderr"] == 0.0


def test_an_environment_counts_the_same_however_many_tasks_it_has() -> None:
    """x: three tasks, all solved; y: one task, failed. The mean of 1 and 0, not 3 of 4."""
    evaluation = Evaluation(0, evaluation_tasks(("x", "y"), 3, {"y": 1}), 1)
    for group_id in evaluation.waiting:
        _result(evaluation, group_id, (evaluation.task(group_id).environment == "x",))
    summary = evaluation.summary()
    assert (summary["tasks"], summary["success"]["overall"]) == (4, 0.5)
    assert {name: facts["tasks"] for name, facts in summary["by_env"].items()} == {"x": 3, "y": 1}


def test_overall_is_undefined_while_an_environment_has_no_valid_rollout() -> None:
    evaluation = Evaluation(0, evaluation_tasks(("x", "y"), 1), 1)
    for group_id in evaluation.waiting:
        task = evaluation.task(group_id)
        error = "no server" if task.environment == "y" else None
        evaluation.add(trajectory(group_id, success=True, error=error, environment=task.environment))
    summary = evaluation.summary()
    assert summary["success"] == {"overall": None, "by_env": {"x": 1.0}}
    assert summary["stderr"] is None
    assert (summary["by_env"]["y"]["success"], summary["by_env"]["y"]["invalid"]) == (None, 1)


def test_play_is_told_by_environment() -> None:
    """x: episodes of 1 and 3 turns, all understood; y: one of 2 turns, none understood. 2 of 6 turns are invalid."""
    evaluation = Evaluation(0, evaluation_tasks(("x", "y"), 2, {"y": 1}), 1)
    for group_id, turns in zip(evaluation.waiting, (1, 3, 2), strict=True):
        name = evaluation.task(group_id).environment
        evaluation.add(
            trajectory(group_id, success=turns == 1, versions=(0,) * turns, valid_action=name == "x", environment=name)
        )
    summary = evaluation.summary()
    assert (summary["turns_mean"], summary["invalid_action_share"]) == (2.0, pytest.approx(1 / 3))
    x, y = summary["by_env"]["x"], summary["by_env"]["y"]
    assert (x["turns_mean"], x["invalid_action_share"], x["reward_mean"]) == (2.0, 0.0, 0.5)
    assert (y["turns_mean"], y["invalid_action_share"], y["reward_mean"]) == (2.0, 1.0, 0.0)


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
