from __future__ import annotations

from typing import Any

from stream_rl.config import Alarms
from stream_rl.observe.alarms import AlarmWatch


def _line(step: int, **over: Any) -> dict[str, Any]:
    return {"step": step, "entropy": 0.5, "zero_variance": {"all_fail": 0.2}, "cut_share": 0.0, **over}


def test_an_alarm_needs_patience_and_is_raised_once_per_excursion() -> None:
    watch = AlarmWatch(Alarms(entropy_floor=0.05, patience=2), distillation="rised")
    readings = [0.04, 0.5, 0.04, 0.03, 0.02, 0.5, 0.01, 0.01]
    raised = [[a.name for a in watch.observe(_line(i, entropy=e))] for i, e in enumerate(readings)]
    assert raised == [[], [], [], ["entropy"], [], [], [], ["entropy"]]


def test_each_limit_has_its_alarm_and_its_advice() -> None:
    watch = AlarmWatch(Alarms(patience=1), distillation="rised")
    alarms = watch.observe(_line(7, entropy=0.016, zero_variance={"all_fail": 1.0}, cut_share=0.9))
    assert {a.name for a in alarms} == {"entropy", "all_fail", "cut_actions"}
    assert all(a.step == 7 and "distill_coef" in a.advice for a in alarms)


def test_missing_numbers_raise_nothing() -> None:
    assert AlarmWatch(Alarms(patience=1), distillation="rised").observe({"step": 0}) == []


def test_distillation_is_not_blamed_where_there_is_none() -> None:
    (alarm,) = AlarmWatch(Alarms(patience=1), distillation="none").observe(_line(0, entropy=0.0))
    assert "distill" not in alarm.advice
