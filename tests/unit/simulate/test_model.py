"""Whole simulations: closed forms where there are any, invariants everywhere."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stream_rl.config import Config
from stream_rl.errors import ConfigError
from stream_rl.simulate.model import simulate
from stream_rl.simulate.prediction import Prediction, as_json, in_words
from stream_rl.simulate.profile import LearnerTimes
from tests.unit.simulate.profiles import grpo, profile, rised


def test_at_depth_0_everything_comes_one_after_the_other() -> None:
    # 20 rollouts of 10 turns: a turn takes 0.1 + 20 * 0.01 = 0.3 s, so 3 s. Then 20 * 0.01 s of training and 0.3 s
    # more. Weights are loaded for 0.5 s before the next round; after the last update nobody waits for that.
    found = simulate(grpo(), profile(pause_s=0.5, learner=LearnerTimes(forward_s=0.0, train_s=0.01, fixed_s=0.3)))
    assert found.update_s == pytest.approx(3.0 + 0.5 + 0.5 * 9 / 10)
    assert found.rollout_wait_s == pytest.approx(3.0 + 0.5 * 9 / 10)
    assert found.learner["train_s"] == pytest.approx(0.2)
    assert found.lag_max == 0
    assert found.utilisation["producer"] == pytest.approx(3.0 / 3.95)


def test_producers_share_a_round() -> None:
    # Two producers with two groups each: a turn takes 0.1 + 10 * 0.01 = 0.2 s.
    found = simulate(grpo(generate={"producers": 2}), profile())
    assert found.group_s == pytest.approx(2.0)


def test_groups_wait_for_room() -> None:
    # Room for two groups: two generations of 0.1 + 10 * 0.01 s a turn, one after the other.
    found = simulate(grpo(generate={"concurrency": 10}), profile())
    assert found.rollout_wait_s == pytest.approx(4.0)


def test_a_busy_learner_hides_generation() -> None:
    slow = LearnerTimes(forward_s=0.0, train_s=0.5)  # 10 s an update
    found = simulate(grpo(async_depth=1, updates=100), profile(learner=slow))
    assert found.update_s == pytest.approx(10.0, rel=0.03)
    assert found.rollout_wait_s == pytest.approx(0.05, abs=0.05)  # of the first round alone, over 100 updates
    assert found.utilisation["learner"] == pytest.approx(1.0, abs=0.01)
    assert found.lag_max == 1


def test_at_depth_0_everybody_waits_for_a_version_to_be_written() -> None:
    # 3 s of generation, 0.5 s of update, 2 s to write: ten updates wait for nine versions.
    times = LearnerTimes(forward_s=0.0, train_s=0.0, fixed_s=0.5, publish_s=2.0)
    found = simulate(grpo(), profile(learner=times))
    assert found.update_s == pytest.approx(3.0 + 0.5 + 2.0 * 9 / 10)
    assert found.learner["publish_s"] == pytest.approx(2.0 * 9 / 10)
    assert found.rollout_wait_s == pytest.approx(3.0)


@pytest.mark.parametrize(("publish_s", "update_s"), [(4.0, 10.0), (15.0, 15.0)])
def test_at_depth_2_a_version_is_written_beside_the_next_update(publish_s: float, update_s: float) -> None:
    times = LearnerTimes(forward_s=0.0, train_s=0.5, publish_s=publish_s)  # 10 s an update
    found = simulate(grpo(async_depth=2, updates=200), profile(learner=times))
    assert found.update_s == pytest.approx(update_s, rel=0.02)
    assert found.learner["train_s"] == pytest.approx(10.0, rel=0.001)
    assert found.learner["publish_s"] == pytest.approx(update_s - 10.0, abs=0.1)
    assert found.lag_max == 2


def test_a_learner_faster_than_generation_gets_its_throughput_and_no_more() -> None:
    # Generation alone, without latency: 20 rollouts * 10 turns * 0.01 s = 2 s of a generator that is never idle.
    found = simulate(grpo(async_depth=2, updates=200), profile(turn_s=0.0))
    assert found.update_s == pytest.approx(2.0, rel=0.02)
    assert found.utilisation["producer"] == pytest.approx(1.0, abs=0.01)


def test_a_judge_delays_the_last_verdict_of_a_round_at_depth_0() -> None:
    found = simulate(rised(places=40), profile(answer_s=5.0))
    assert found.judge_wait_s == pytest.approx(5.0)
    assert found.rollout_wait_s == pytest.approx(10 * (0.1 + 40 * 0.01))


def test_few_places_at_the_judge_make_a_queue() -> None:
    # 40 questions at once in 8 places are five rounds of answers.
    found = simulate(rised(places=8), profile(answer_s=2.0))
    assert found.judge_wait_s == pytest.approx(10.0)
    assert found.utilisation["judge"] == pytest.approx(10.0 / found.update_s)


def test_a_judge_hides_behind_an_update_at_depth_2() -> None:
    slow = LearnerTimes(forward_s=0.0, train_s=0.5)
    found = simulate(rised(places=40, async_depth=2, updates=50), profile(answer_s=5.0, learner=slow))
    assert found.judge_wait_s == pytest.approx(0.1, abs=0.01)  # before the first update alone
    assert found.update_s == pytest.approx(10.0, rel=0.05)


def test_shared_cores_slow_generator_and_learner_while_both_compute() -> None:
    # A generator that needs 1 core and a learner that needs 1 fit on two cores, and take turns on one.
    slow = LearnerTimes(forward_s=0.0, train_s=0.5)
    alone = simulate(grpo(async_depth=1, updates=60), profile(rollout_s=0.0, turn_s=0.9, learner=slow))
    own = profile(rollout_s=0.0, turn_s=0.9, learner=slow)
    own = msgspec.structs.replace(own, generator=msgspec.structs.replace(own.generator, cores=1.0))
    two = simulate(grpo(async_depth=1, updates=60), msgspec.structs.replace(own, cores=2))
    one = simulate(grpo(async_depth=1, updates=60), msgspec.structs.replace(own, cores=1))
    assert two.update_s == pytest.approx(alone.update_s)
    # 10 s of training and 9 s of generation an update, one core: 19 s.
    assert one.update_s == pytest.approx(19.0, rel=0.03)


@pytest.mark.parametrize(("cores", "depth_0_s", "depth_1_s"), [(1, 9.0, 9.0), (2, 6.0, 4.5), (4, 6.0, 3.0)])
def test_what_is_needed_of_1_2_and_4_cores(cores: int, depth_0_s: float, depth_1_s: float) -> None:
    """20 rollouts of 10 turns, one every 0.1 + 20 * 0.01 s: 3 s of generation, and 3 s of training with one thread.

    66.7 turns a second of 0.015 s of CPU each keep a core busy beside the generator's: 2 cores, and 1 of the learner.
    One after the other (depth 0) generation takes 6 s on one core; side by side 3 cores are wanted.
    """
    times = profile(learner=LearnerTimes(forward_s=0.0, train_s=0.15), cores=cores)
    times = msgspec.structs.replace(times, generator=msgspec.structs.replace(times.generator, turn_cpu_s=0.015))
    found = simulate(grpo(), times)
    assert found.update_s == pytest.approx(depth_0_s)
    assert found.turns == pytest.approx(200)
    for depth, expected in ((0, depth_0_s), (1, depth_1_s)):
        found = simulate(grpo(async_depth=depth, updates=100), times)
        assert found.update_s == pytest.approx(expected, rel=0.03)
        used = pytest.approx({"generators": 3.0, "around": 3.0, "learner": 3.0}, rel=0.01)
        assert found.cpu_s == used  # however long it takes


def test_latency_is_not_stretched_by_cores_that_are_few() -> None:
    """On one core generation takes twice as long, an answer of a judge elsewhere as long as ever."""
    times = profile(answer_s=5.0, cores=1)
    times = msgspec.structs.replace(times, generator=msgspec.structs.replace(times.generator, turn_cpu_s=0.0125))
    found = simulate(rised(places=40), times)
    assert found.rollout_wait_s == pytest.approx(2 * 10 * (0.1 + 40 * 0.01))  # 80 turns a second of 0.0125 s: 1 core
    assert found.judge_wait_s == pytest.approx(5.0)


def test_at_depth_0_roles_do_not_meet_on_shared_cores() -> None:
    found = simulate(grpo(), profile(cores=2))
    assert found.update_s == pytest.approx(simulate(grpo(), profile()).update_s)


def test_a_world_whose_workers_are_few_keeps_the_generator_waiting() -> None:
    # One worker answers in 0.1 s: 20 rollouts get 10 turns a second, 200 turns take 20 s.
    slow = profile(step_s=0.1, worker_s=0.1)
    assert simulate(grpo(), slow).rollout_wait_s == pytest.approx(20.0)
    assert simulate(grpo(environments=[{"name": "household", "workers": 8}]), slow).rollout_wait_s < 5.0


def test_discarded_groups_are_generated_again() -> None:
    wasteful = simulate(grpo(updates=200), profile(invalid_share=0.5))
    sound = simulate(grpo(updates=200), profile())
    made = [found.rollouts_per_s * found.update_s for found in (wasteful, sound)]
    assert made[0] == pytest.approx(2 * made[1], rel=0.1)


def test_an_evaluation_costs_what_the_drain_costs() -> None:
    # Rounds 0 and 1 are played together, 40 rollouts, in 5 s, and trained until 5.2 and 5.4. Round 2 is leased at 5.2
    # and lasts 3 s alone; version 2, live at 5.4, is evaluated when it has ended, at 8.2, and only then round 3 begins.
    # So every update from there on takes 3 s: the last, number 19, ends at 8.4 + 17 * 3.
    fast = profile(learner=LearnerTimes(forward_s=0.0, train_s=0.01))
    often = simulate(grpo(async_depth=1, updates=20, eval={"every": 1}), fast)
    assert often.update_s == pytest.approx((8.4 + 17 * 3.0) / 20)
    assert simulate(grpo(async_depth=1, updates=20), fast).update_s < 0.95 * often.update_s


def test_a_window_lets_finished_groups_pass_stragglers() -> None:
    straggling = profile(turns=(1.0,) * 19 + (100.0,), turn_s=0.1, rollout_s=0.0)
    strict = simulate(grpo(async_depth=1, updates=100), straggling)
    loose = simulate(grpo(async_depth=1, updates=100, groups={"window": 2}), straggling)
    assert loose.update_s < strict.update_s
    assert loose.lag_max <= 2


def test_draining_keeps_depth_and_costs_the_tail() -> None:
    mixed = profile(turns=(2.0, 4.0, 20.0))
    drained = simulate(grpo(async_depth=1, updates=50, weights={"mode": "drain"}), mixed)
    flying = simulate(grpo(async_depth=1, updates=50), mixed)
    assert drained.update_s > flying.update_s


def test_the_policy_writes_its_bundles_before_its_group_ends() -> None:
    base: dict[str, Any] = {"selection": "random", "distillation": "orsd", "rubrics": "written", "bundle_tokens": 50}
    writing = profile(rollout_s=0.0)
    writing = msgspec.structs.replace(writing, generator=msgspec.structs.replace(writing.generator, turn_tokens=10.0))
    found = simulate(rised(algorithm=base), writing)
    assert found.group_s == pytest.approx(10 * 0.1 + 5 * 0.1)  # ten turns, and bundles as long as five


def test_updates_and_seed_may_be_given() -> None:
    mixed = profile(turns=(2.0, 4.0, 20.0))
    first = simulate(grpo(), mixed, updates=7, seed=3)
    assert first.updates == 7
    assert first == simulate(grpo(), mixed, updates=7, seed=3)
    assert first != simulate(grpo(), mixed, updates=7, seed=4)


def test_a_world_without_times_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"environments\.0\.name: .* nothing about 'webshop'; it knows household"):
        simulate(grpo(environments=[{"name": "webshop"}]), profile())


def test_what_the_model_leaves_out_is_said() -> None:
    found = simulate(grpo(groups={"deadline_s": 1.0}), profile())
    assert "groups.deadline_s = 1 would cut it" in found.notes[0]
    assert "its answers take no time" in simulate(rised(), profile()).notes[0]


@settings(deadline=None, max_examples=60)
@given(
    depth=st.integers(0, 4),
    producers=st.integers(1, 3),
    concurrency=st.integers(1, 30),
    candidates=st.integers(4, 9),
    buffer=st.integers(0, 2),
    mode=st.sampled_from(["in_flight", "drain"]),
    every=st.integers(0, 5),
    cores=st.integers(0, 2),
    train_s=st.floats(0.0, 0.3),
    publish_s=st.sampled_from([0.0, 0.5, 5.0]),
    answer_s=st.floats(0.0, 3.0),
    invalid=st.floats(0.0, 0.4),
    seed=st.integers(0, 9),
)
@example(  # cores change hands while an update waits for the version before it
    depth=2,
    producers=2,
    concurrency=1,
    candidates=4,
    buffer=0,
    mode="in_flight",
    every=0,
    cores=2,
    train_s=0.0,
    publish_s=5.0,
    answer_s=0.0,
    invalid=0.0,
    seed=0,
)
def test_every_run_ends_within_the_bound_and_its_parts_add_up(
    depth: int,
    producers: int,
    concurrency: int,
    candidates: int,
    buffer: int,
    mode: Literal["in_flight", "drain"],
    every: int,
    cores: int,
    train_s: float,
    publish_s: float,
    answer_s: float,
    invalid: float,
    seed: int,
) -> None:
    config = rised(
        updates=6,
        seed=seed,
        async_depth=depth,
        generate={"producers": producers, "concurrency": concurrency},
        groups={"candidates": candidates, "buffer": buffer * candidates, "window": min(2, depth + 1)},
        weights={"mode": mode},
        eval={"every": every},
    )
    times = profile(
        turns=(2.0, 5.0, 6.0, 20.0),
        pause_s=0.1,
        answer_s=answer_s,
        cores=cores,
        invalid_share=invalid,
        learner=LearnerTimes(forward_s=0.01, train_s=train_s, fixed_s=0.05, publish_s=publish_s),
    )
    _sound(simulate(config, times), config)


def _sound(found: Prediction, config: Config) -> None:
    parts = found.rollout_wait_s + found.judge_wait_s + sum(found.learner.values())
    assert parts == pytest.approx(found.update_s)
    assert found.lag_max <= config.lag_limit
    assert all(0.0 <= share <= 1.0 + 1e-9 for share in found.utilisation.values())
    assert found.rollouts_per_s * found.update_s * found.updates >= found.updates * config.groups.candidates * 5 - 1e-6


def test_facts_have_the_names_that_scripts_rely_on() -> None:
    facts = as_json(simulate(rised(), profile(answer_s=1.0)))
    assert {"update_s", "rollout_wait_s", "judge_wait_s", "lag_max", "utilisation"} <= facts.keys()
    assert facts["utilisation"].keys() == {"producer", "learner", "judge"}


def test_people_get_a_table() -> None:
    text = in_words(simulate(grpo(), profile()), "a run")
    assert text.startswith("a run: 10 updates, simulated\n  update               3.20 s\n  rollout wait         3.00 s")
    assert "93.8% of the learner's time" in text
    assert "lag             0.00 on average, 0 at most" in text
