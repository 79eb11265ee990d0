from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rl.page.columns import Columns


def filled(*lines: dict[str, Any]) -> Columns:
    columns = Columns()
    for line in lines:
        columns.add(line)
    return columns


def test_points_are_means_of_what_is_known() -> None:
    columns = filled(
        {"step": 0, "loss": 1.0, "success": {"train": 0.0}},
        {"step": 1, "loss": 2.0, "success": {"train": None}},
        {"step": 2, "loss": None, "success": {"train": 0.5}},
        {"step": 3, "loss": 6.0, "success": {"train": 1.0}},
    )
    found = columns.slice(since=-1, points=2)
    assert found.step == [1, 3]
    assert found.updates == 4
    assert found.columns["loss"] == [1.5, 6.0]  # (1 + 2) / 2; 6 alone, nothing was measured in update 2
    assert found.columns["success/train"] == [0.0, 0.75]


def test_what_was_never_measured_in_a_point_is_missing_not_zero() -> None:
    found = filled({"step": 0, "loss": 1.0}, {"step": 1}).slice(since=-1, points=9)
    assert found.columns["loss"] == [1.0, None]


def test_a_column_may_begin_late() -> None:
    found = filled({"step": 0}, {"step": 1, "success": {"by_env": {"shop": 0.25}}}).slice(since=-1, points=9)
    assert found.columns["success/by_env/shop"] == [None, 0.25]


def test_the_largest_lag_of_several_updates_is_shown() -> None:
    lines = [{"step": step, "lag": {"max": lag, "mean": lag}} for step, lag in enumerate((0, 3, 1))]
    found = filled(*lines).slice(since=-1, points=1)
    assert found.columns["lag/max"] == [3.0]
    assert found.columns["lag/mean"] == [pytest.approx(4 / 3, abs=1e-4)]


def test_since_gives_later_updates_only() -> None:
    columns = filled(*({"step": step, "loss": float(step)} for step in range(6)))
    assert columns.slice(since=3, points=9).step == [4, 5]
    assert columns.slice(since=3, points=9).columns["loss"] == [4.0, 5.0]
    assert columns.slice(since=5, points=9).step == []


def test_an_update_trained_again_replaces_those_from_it_on() -> None:
    columns = filled(*({"step": step, "loss": 1.0} for step in range(4)), {"step": 2, "loss": 9.0})
    found = columns.slice(since=-1, points=9)
    assert found.step == [0, 1, 2]
    assert found.columns["loss"] == [1.0, 1.0, 9.0]
    assert columns.replaced == 1


def test_totals_add_up_by_name() -> None:
    columns = filled(
        {
            "step": 0,
            "groups": {"discarded": {"stale": 1}},
            "lag": {"histogram": {"0": 4}, "by_origin": {"buffer": {"0": 4}}},
        },
        {"step": 1, "groups": {"discarded": {"stale": 2, "too_few_valid": 1}}, "lag": {"histogram": {"0": 1, "1": 3}}},
    )
    totals = columns.totals()
    assert totals["discarded"] == {"stale": 3.0, "too_few_valid": 1.0}
    assert totals["lag"] == {"0": 5.0, "1": 3.0}
    assert totals["lag_by_origin"] == {"buffer/0": 4.0}


def test_roles_hold_the_learner_and_leave_out_what_is_no_role() -> None:
    line = {
        "step": 0,
        "learner": {"rollout_wait_s": 1.0, "train_s": 3.0, "total_s": 4.0},
        "roles": {"producer-0": {"generate": 2.0}, "weights": {"pause_s": 0.1}},
    }
    assert filled(line).roles() == {
        "learner": {"rollout_wait": 1.0, "train": 3.0},
        "producer-0": {"generate": 2.0},
    }


def test_recent_roles_are_of_the_newest_twenty_updates() -> None:
    lines = [{"step": step, "roles": {"producer-0": {"generate": 1.0}}} for step in range(50)]
    columns = filled(*lines)
    assert columns.roles()["producer-0"]["generate"] == 50.0
    assert columns.recent_roles()["producer-0"]["generate"] == 20.0


def test_wait_is_a_share_of_training_time_by_the_depth_in_force() -> None:
    def line(step: int, depth: int, wait_s: float, train_s: float) -> dict[str, Any]:
        parts = {"rollout_wait_s": wait_s, "train_s": 10.0 - wait_s, "total_s": 10.0}
        return {"step": step, "async_depth": depth, "learner": parts, "train_s": train_s}

    columns = filled(line(0, 0, 5.0, 10.0), line(1, 1, 1.0, 20.0), line(2, 1, 2.0, 30.0))
    assert columns.slice(since=-1, points=9).columns["share/rollout_wait"] == [0.5, 0.1, 0.2]
    assert columns.by_depth()[0].parts["rollout_wait"] == 5.0
    assert columns.by_depth()[1].parts["rollout_wait"] == 3.0
    assert columns.by_depth()[1].updates == 2


def test_lines_without_an_update_are_left_out() -> None:
    assert len(filled({"loss": 1.0}, {"step": None})) == 0


@settings(deadline=None, max_examples=40)
@given(
    values=st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6)), min_size=1, max_size=60),
    points=st.integers(1, 70),
)
def test_any_thinning_keeps_the_ends_and_the_mean(values: list[float | None], points: int) -> None:
    found = filled(*({"step": step, "loss": value} for step, value in enumerate(values))).slice(since=-1, points=points)
    assert len(found.step) <= points
    assert found.step == sorted(set(found.step))
    assert found.step[-1] == len(values) - 1
    known = [value for value in values if value is not None]
    for column in found.columns.values():
        assert len(column) == len(found.step)
        shown = [value for value in column if value is not None]
        slack = 1e-4 * max(map(abs, known)) + 1e-190
        assert min(known) - slack <= min(shown) <= max(shown) <= max(known) + slack
    if points == 1 and known:
        mean = sum(known) / len(known)
        assert found.columns["loss"][0] == pytest.approx(mean, rel=1e-3, abs=1e-4 * max(map(abs, known)) + 1e-12)
