from __future__ import annotations

from typing import Any

import pytest

from stream_rl.observe.summary import Summary, summarise
from tests.unit.observe.samples import ALARM, eval_record, metrics_line


def summary(
    lines: list[dict[str, Any]] | None = None,
    evals: list[dict[str, Any]] | None = None,
    events: list[dict[str, Any]] | None = None,
) -> Summary:
    return summarise("night", metrics=lines or [], evals=evals or [], events=events or [])


def test_an_empty_run_has_a_summary() -> None:
    s = summary()
    assert (s.updates, s.train_s, s.start, s.gain, s.lag_max, s.advice) == (0, 0.0, None, None, None, ())
    assert "has not begun" in s.end


def test_success_time_and_thresholds() -> None:
    evals = [
        eval_record(0, train_s=0, success=0.2),
        eval_record(10, train_s=40, success=0.6),
        eval_record(20, train_s=80, success=0.55),
    ]
    s = summary([metrics_line(0, train_s=4.0, wall_s=30.0), metrics_line(1, train_s=8.0, wall_s=60.0)], evals)
    assert s.start is not None
    assert s.final is not None
    assert s.gain is not None
    assert s.best is not None
    assert (s.start.value, s.final.value, s.best.version) == (0.2, 0.55, 10)
    assert s.gain.value == pytest.approx(0.35)
    # 0.5 lies three quarters of the way from 0.2 to 0.6.
    assert s.seconds_to == {"0.5": pytest.approx(30.0), "0.6": pytest.approx(40.0)}
    assert (s.updates, s.train_s, s.wall_s) == (2, 8.0, 60.0)


def test_shares_of_every_role_add_up_to_one() -> None:
    s = summary([metrics_line(0, train_s=4.0), metrics_line(1, train_s=8.0)])
    assert s.learner["rollout_wait"] == 0.25
    assert s.learner["train"] == 0.5
    assert sum(s.learner.values()) == pytest.approx(1.0)
    assert s.update_s == 4.0
    assert s.learner_s["prox"] == 0.5
    assert s.roles == {
        "producer-0": {"generate": 0.75, "environment": 0.125, "paused_for_sync": 0.0625, "wait_for_lease": 0.0625}
    }
    assert s.weight_updates_s == {"pause_s": 0.5, "load_s": 0.25}


def test_tokens_lags_and_losses_are_summed() -> None:
    lost = {"candidate": 32, "selected": 16, "discarded": {"not_selected": 16, "stale": 8}}
    lines = [metrics_line(0, train_s=4.0), metrics_line(1, train_s=8.0, groups=lost)]
    lines[1]["tokens"] = {"generated": 24000, "trained": 8000, "discarded": 16000, "judge": 500, "teacher": 300}
    lines[1]["lag"] = {"max": 3, "mean": 3.0, "histogram": {"3": 16}}
    s = summary(lines)
    assert s.tokens == {"generated": 32000, "trained": 16000, "discarded": 16000, "judge": 500, "teacher": 300}
    assert s.generated_per_s == 4000.0
    assert s.lag_max == 3
    assert s.lag_histogram == {"0": 8, "1": 8, "3": 16}
    assert s.lag_mean == pytest.approx((8 * 0 + 8 * 1 + 16 * 3) / 32)
    assert s.groups == {"candidate": 48, "selected": 32}
    assert s.discarded == {"not_selected": 16, "stale": 8}
    # 8 stale of 48 + 8 groups are 14 %; what selection left out is no loss.
    assert [line for line in s.advice if "too old" in line] == [
        "14% of the groups were too old to be trained: lower async_depth, or raise max_lag"
    ]


def test_costs_of_every_kind_are_summed() -> None:
    lines = [metrics_line(i, train_s=4.0 * (i + 1)) for i in range(2)]
    for line in lines:
        line["tokens"] |= {"judge": 500, "judge_prompt": 400, "judge_completion": 100, "teacher": 300}
        line["tokens"] |= {"reference": 700, "writing": 60}
        line["judge"] = {"price": 0.0125, "abstained_share": None}
        line["rollouts"] = {"discarded": {"stale": 8, "too_few_valid": 5}}
        line["invalid_trajectories"] = 3
    s = summary(lines)
    assert s.tokens == {
        "generated": 16000,
        "trained": 16000,
        "discarded": 0,
        "judge": 1000,
        "teacher": 600,
        "judge_prompt": 800,
        "judge_completion": 200,
        "reference": 1400,
        "writing": 120,
    }
    assert s.judge_price == pytest.approx(0.025)
    assert s.discarded_rollouts == {"stale": 16, "too_few_valid": 10}
    assert s.failed_rollouts == 6


def test_what_older_lines_do_not_count_is_not_measured() -> None:
    new = metrics_line(1, train_s=8.0, judge={"price": 0.5}, orsd={"rho_mean": 0.4})
    new["tokens"]["writing"] = 60
    s = summary([metrics_line(0, train_s=4.0), new])
    assert s.tokens["writing"] == 60
    assert s.judge_price == 0.5
    assert s.orsd == {"rho_mean": 0.4}
    old = summary([metrics_line(0, train_s=4.0, tokens=None)])
    assert old.tokens == {"generated": 0, "trained": 0, "discarded": 0, "judge": 0, "teacher": 0}
    assert (old.judge_price, old.discarded_rollouts, old.failed_rollouts, old.orsd) == (None, {}, None, {})
    assert old.switches == {}


def test_written_rubrics_are_averaged_over_the_updates_that_measured_them() -> None:
    first = {"rho_mean": 0.5, "undefined_share": 0.25, "malformed_share": 0.0, "bank_share": None}
    second = {"rho_mean": None, "undefined_share": 0.75, "malformed_share": 0.5, "bank_share": None}
    s = summary([metrics_line(0, train_s=4.0, orsd=first), metrics_line(1, train_s=8.0, orsd=second)])
    assert s.orsd == {"rho_mean": 0.5, "undefined_share": 0.5, "malformed_share": 0.25}


def test_an_update_trained_again_after_a_resume_counts_once() -> None:
    s = summary([metrics_line(0, train_s=4.0), metrics_line(1, train_s=8.0), metrics_line(1, train_s=9.0)])
    assert (s.updates, s.train_s) == (2, 9.0)


def test_alarms_come_with_their_advice_and_trouble_is_counted() -> None:
    s = summary(
        [metrics_line(0, train_s=4.0)],
        events=[
            ALARM,
            {"type": "role_restarted", "name": "producer-0", "exit_code": -9},
            {"type": "role_restarted", "name": "producer-0", "exit_code": -9},
            {"type": "judge", "problem": "nobody answers"},
            {"type": "judge", "problem": None},
        ],
    )
    assert [(a.name, a.step, a.value) for a in s.alarms] == [("entropy", 9, 0.02)]
    assert "lower learner.lr" in s.alarms[0].advice
    assert s.trouble == {"judge": 1, "role_restarted": 2}


@pytest.mark.parametrize(
    ("events", "complete", "words"),
    [
        ([{"type": "finished", "complete": True, "reason": "every update is trained"}], True, "complete"),
        ([{"type": "finished", "complete": False, "reason": "asked to stop"}], False, "stopped: asked to stop"),
        ([{"type": "failing", "role": "learner-0"}], False, "failed: learner-0"),
        ([{"type": "finished", "complete": False}, {"type": "learner_ready"}], False, "not finished"),
    ],
)
def test_how_it_ended(events: list[dict[str, Any]], complete: bool, words: str) -> None:
    s = summary([metrics_line(0, train_s=4.0)], events=events)
    assert s.complete is complete
    assert words in s.end


def test_a_gain_within_its_error_is_called_unclear() -> None:
    evals = [eval_record(0, train_s=0, success=0.2), eval_record(10, train_s=40, success=0.22)]
    assert any("within its error" in line for line in summary([metrics_line(0, train_s=4.0)], evals).advice)


def test_what_the_orchestrator_measures_is_added_up() -> None:
    """Levels are weighted with the time between lines: 10 for 30 s, then 40 for 10 s."""
    lines = [metrics_line(0, train_s=4.0, wall_s=30.0), metrics_line(1, train_s=8.0, wall_s=40.0)]
    for line, level in zip(lines, (10.0, 40.0), strict=True):
        line["levels"] = {"permits_taken": {"mean": level, "max": 50}}
        line["cost"] = {"device_s": {"learner": 4.0, "generators": 8.0}, "cpu_s": {"learner": 2.5, "judges": 0.5}}
        line["loop_lag"] = {"mean_s": 0.0, "max_s": level / 100}
        line["slots"] = {"producer-0": {"generate": 6.0, "wait_for_lease": 2.0}}
        line["lag"]["by_origin"] = {"generation": {"0": 12, "1": 4}, "learner": {"0": 12, "1": 4}}
        line["rollouts"] = {"discarded": {}, "rerolled": {"environment_lost": 1}}
        line["learner_other"] |= {"evaluation_s": 0.0, "startup_s": 0.0, "paused_s": 0.125}
        line["roles"]["producer-0/generator"] = {"generate": 3.0, "idle": 1.0}
    s = summary(lines)
    assert s.levels == {"permits_taken": (10 * 30 + 40 * 10) / 40}
    assert s.device_s == {"learner": 8.0, "generators": 16.0}
    assert s.cpu_s == {"learner": 5.0, "judges": 1.0}
    assert s.loop_lag_s == 0.4
    assert s.slots == {"producer-0": {"generate": 0.75, "wait_for_lease": 0.25}}
    assert s.lag_origins == {"generation": 0.25, "learner": 0.25}
    assert sum(s.lag_origins.values()) == s.lag_mean
    assert s.rerolled == {"environment_lost": 2}
    assert s.paused_s == 0.25
    assert s.roles["producer-0/generator"] == {"generate": 0.75, "idle": 0.25}
