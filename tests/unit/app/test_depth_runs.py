"""`depth`: which runs are made, what is read of them, what is predicted for them."""

from __future__ import annotations

import msgspec
import pytest

from stream_rl.app.depth.figures import Figures
from stream_rl.app.depth.measured import measured
from stream_rl.app.depth.simulated import simulated
from stream_rl.app.depth.trials import Window, at_depth, trials
from stream_rl.config import Config, from_dict
from stream_rl.config.impossible import refuse_impossible
from tests.unit.observe.samples import eval_record, metrics_line
from tests.unit.simulate.profiles import grpo, profile

WINDOW = Window(warmup=3, updates=6)


def test_every_repeat_holds_each_depth_once_and_turns_the_order_round() -> None:
    made = list(trials(Config(seed=7), [4, 0, 2], repeats=3, window=WINDOW, name="mine"))
    assert [(t.repeat, t.depth) for t in made] == [
        (0, 0),
        (0, 2),
        (0, 4),
        (1, 4),
        (1, 2),
        (1, 0),
        (2, 0),
        (2, 2),
        (2, 4),
    ]
    assert {t.repeat: t.config.seed for t in made} == {0: 7, 1: 8, 2: 9}
    assert all(t.config.async_depth == t.depth for t in made)
    assert made[1].name == "mine-depth2-1"
    assert len({t.name for t in made}) == 9


def test_a_run_goes_on_past_its_window_so_that_generation_does_too() -> None:
    """Rounds past the last update are never leased, so nothing is generated beside the last `depth` updates."""
    assert at_depth(Config(), 4, WINDOW, 0).updates == 3 + 6 + 4
    assert at_depth(Config(), 0, WINDOW, 0).updates == 3 + 6


@pytest.mark.parametrize("depth", [0, 1, 4])
def test_what_belongs_to_another_depth_does_not_hold_a_run_back(depth: int) -> None:
    config = from_dict({"async_depth": 2, "max_lag": 2, "groups": {"window": 3}, "eval": {"every": 2}})
    changed = at_depth(config, depth, WINDOW, 0)
    refuse_impossible(changed)
    assert changed.groups.window == min(3, depth + 1)
    assert changed.lag_limit == depth + changed.groups.window - 1
    assert changed.eval.every == changed.updates
    assert changed.learner == config.learner


def test_a_run_that_is_never_evaluated_is_not_evaluated_here() -> None:
    assert at_depth(from_dict({"eval": {"every": 0}}), 1, WINDOW, 0).eval.every == 0


def test_only_the_window_counts() -> None:
    lines = []
    train_s = 0.0
    for step in range(11):
        wait_s = 1.0 if 3 <= step < 9 else 100.0
        update_s = wait_s + 0.5 + 2.0 + 0.5
        train_s += update_s
        lines.append(
            metrics_line(
                step,
                train_s=train_s,
                learner={
                    "rollout_wait_s": wait_s, "judge_wait_s": 0.5, "prox_s": 0.0, "teacher_s": 0.0, "train_s": 2.0,
                    "publish_s": 0.25, "other_s": 0.25, "total_s": update_s,
                },
                tokens={"trained": 200 if 3 <= step < 9 else 1},
                cost={"device_s": {"learner": update_s, "generators": 2 * update_s}},
                lag={"histogram": {"0": 3, "2": 1} if 3 <= step < 9 else {"7": 4}},
                success={"train": 0.5 if 3 <= step < 9 else 0.0},
            )
        )  # fmt: skip
    evals = [eval_record(0, train_s=0.0, success=0.1), eval_record(11, train_s=train_s, success=0.75)]
    found = measured(lines, evals, WINDOW)
    assert found is not None
    assert found.updates == 6
    assert found.update_s == pytest.approx(4.0)
    assert found.updates_per_min == pytest.approx(15.0)
    assert found.trained_tokens_per_s == pytest.approx(50.0)
    assert [found.rollout_wait_s, found.rollout_wait_share] == pytest.approx([1.0, 0.25])
    assert [found.judge_wait_s, found.judge_wait_share] == pytest.approx([0.5, 0.125])
    assert [found.lag_mean, found.lag_max] == pytest.approx([0.5, 2])
    assert found.device_s == pytest.approx(6 * 12.0)
    assert [found.success_train, found.success_held_out] == pytest.approx([0.5, 0.75])


def test_a_run_that_was_stopped_counts_with_what_it_has() -> None:
    lines = [metrics_line(step, train_s=4.0 * (step + 1)) for step in range(5)]
    found = measured(lines, [eval_record(0, train_s=0.0, success=0.5)], WINDOW)
    assert found is not None
    assert (found.updates, found.success_held_out) == (2, None)
    assert found.device_s is None
    assert measured(lines[:3], [], WINDOW) is None


def base(**over: object) -> Figures:
    figures = Figures(
        updates=6, update_s=1.7, updates_per_min=60 / 1.7, trained_tokens_per_s=1000 / 1.7, rollout_wait_s=1.0,
        rollout_wait_share=1 / 1.7, judge_wait_s=0.5, judge_wait_share=0.5 / 1.7, lag_mean=0.0, lag_max=0,
        device_s=5 * 1.7 * 6,
    )  # fmt: skip
    return msgspec.structs.replace(figures, **over)


@pytest.mark.parametrize(
    ("depth", "update_s", "lag"),
    [
        (0, 1.7, 0),  # 10 turns of 0.1 s, a verdict of 0.5 s, 20 passes of 0.01 s, one after the other
        (1, 1.7 / 2, 1),  # two rounds are under way at any time
        (2, 1.7 / 3, 2),
        (8, 0.2, 8),  # the learner alone
    ],
)
def test_a_prediction_where_latency_is_all_there_is(depth: int, update_s: float, lag: int) -> None:
    config = grpo(judge={"endpoints": [{"url": "http://127.0.0.1:1/v1", "concurrency": 1000}]})
    times = profile(turn_s=0.1, rollout_s=0.0, turns=(10.0,), answer_s=0.5)
    window = Window(warmup=9, updates=18)
    found = simulated(at_depth(config, depth, window, 0), times, window, base())
    assert found.update_s == pytest.approx(update_s)
    assert [found.lag_mean, found.lag_max] == pytest.approx([lag, lag])
    assert found.rollout_wait_s + found.judge_wait_s == pytest.approx(update_s - 0.2)
    assert found.trained_tokens_per_s == pytest.approx(1000 / update_s)
    assert found.device_s == pytest.approx(5 * update_s * 18)
    assert found.success_train is None


def test_what_was_not_measured_is_not_predicted() -> None:
    nothing = base(trained_tokens_per_s=None, device_s=None)
    found = simulated(grpo(), profile(), Window(warmup=0, updates=3), nothing)
    assert (found.trained_tokens_per_s, found.device_s) == (None, None)
