"""Seconds of an update, worked by hand: 4 groups of 5 rollouts are 20."""

from __future__ import annotations

from typing import Any

import pytest

from stream_rl.simulate.profile import LearnerTimes
from stream_rl.simulate.work import UpdateWork, update_work
from tests.unit.simulate.profiles import grpo, rised


def work(config: Any, **over: Any) -> UpdateWork:
    return update_work(config, LearnerTimes(**({"forward_s": 1.0, "train_s": 3.0} | over)))


def test_grpo_trains_every_rollout_in_one_pass() -> None:
    found = work(grpo(), fixed_s=2.0, publish_s=1.0)
    assert (found.prox_s, found.teacher_s, found.train_s) == (0.0, 0.0, 60.0)
    assert found.computing_s == 62.0, "a version is written beside the next update"


def test_no_pass_reads_groups_without_spread() -> None:
    found = work(grpo(), silent_share=0.25)
    assert (found.prox_s, found.train_s) == (0.0, 45.0)


def test_later_mini_batches_need_a_prox_pass() -> None:
    # 4 mini-batches: three quarters of what has a signal, 15 of 20, are scored first.
    found = work(grpo(learner={"mini_batches": 4}), silent_share=0.25)
    assert found.prox_s == pytest.approx(0.75 * 15)


def test_an_entropy_term_gives_every_rollout_a_signal() -> None:
    found = work(grpo(algorithm={"entropy_coef": 0.001}), silent_share=0.25)
    assert (found.prox_s, found.train_s) == (0.0, 60.0)


def test_a_reference_is_one_more_pass() -> None:
    assert work(grpo(algorithm={"kl_coef": 0.01})).prox_s == 20.0


def test_rised_is_taught_and_trains_silent_groups_that_are() -> None:
    found = work(rised(), silent_share=0.5, taught_share=0.5)
    assert found.teacher_s == 10.0
    assert found.train_s == 45.0  # a quarter is neither taught nor of mixed outcomes
    assert work(rised(), teacher_s=2.0).teacher_s == 40.0


def test_opsd_trains_what_is_taught() -> None:
    config = rised(algorithm={"distillation": "opsd", "teacher": "frozen"})
    assert work(config, taught_share=0.5).train_s == 30.0


def test_orsd_reads_the_gap_before_it_trains() -> None:
    config = rised(algorithm={"distillation": "orsd", "rubrics": "written", "selection": "random"})
    found = work(config, silent_share=0.25)
    assert (found.prox_s, found.teacher_s, found.train_s) == (15.0, 15.0, 45.0)


def test_ranks_share_the_passes_but_not_the_fixed_time() -> None:
    found = update_work(
        grpo(learner={"ranks": 8}), LearnerTimes(ranks=2, forward_s=1.0, train_s=3.0, fixed_s=2.0, publish_s=1.0)
    )
    assert found.train_s == 15.0
    assert (found.other_s, found.publish_s) == (2.0, 1.0)
