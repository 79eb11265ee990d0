"""The parts of the model, each against numbers worked by hand."""

from __future__ import annotations

import doctest
import math
from types import ModuleType

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rl.simulate import cores as shared_cores
from stream_rl.simulate import episodes, generators, judges, learner
from stream_rl.simulate.cores import Sharing, generator_demand, slowdown
from stream_rl.simulate.episodes import coarse, grain
from stream_rl.simulate.generators import Producer, Room
from stream_rl.simulate.judges import Judges, judges_of
from stream_rl.simulate.pace import turn_cycle_s
from stream_rl.simulate.profile import EnvironmentTimes, JudgeTimes
from tests.unit.simulate.profiles import grpo, rised


@pytest.mark.parametrize("module", [episodes, generators, judges, learner, shared_cores])
def test_examples_in_docstrings(module: ModuleType) -> None:
    assert doctest.testmod(module).failed == 0


def test_a_turn_beside_others_takes_longer_by_each_of_them() -> None:
    assert turn_cycle_s(1, turn_s=0.1, rollout_s=0.01, step_s=0.0) == pytest.approx(0.11)
    assert turn_cycle_s(20, turn_s=0.1, rollout_s=0.01, step_s=0.0) == pytest.approx(0.3)


def test_few_workers_bound_the_rate_of_turns() -> None:
    # 50 rollouts, answers of 0.1 s from 2 workers: 20 turns a second, so each rollout acts every 2.5 s.
    assert turn_cycle_s(50, turn_s=0.1, rollout_s=0.0, step_s=0.1, worker_s=0.05) == pytest.approx(2.5)


@settings(deadline=None, max_examples=60)
@given(
    n=st.integers(1, 500),
    turn_s=st.floats(0.001, 2.0),
    rollout_s=st.floats(1e-5, 0.1),
    step_s=st.floats(0.0, 3.0),
)
def test_rollouts_in_the_generator_obey_littles_law(n: int, turn_s: float, rollout_s: float, step_s: float) -> None:
    cycle_s = turn_cycle_s(n, turn_s=turn_s, rollout_s=rollout_s, step_s=step_s)
    generator_s = cycle_s - step_s
    in_generator = n * generator_s / cycle_s
    assert math.isclose(generator_s, turn_s + rollout_s * in_generator, rel_tol=1e-6)


@settings(deadline=None, max_examples=60)
@given(turns=st.lists(st.integers(1, 20), min_size=1, max_size=30))
def test_a_shared_generator_needs_the_longest_latency_and_everybodys_work(turns: list[int]) -> None:
    # Processor sharing with a pace of a + b * n: the last rollout ends at a * (longest) + b * (sum of all).
    producer, now_s = Producer(pace=1.0), 0.0
    producer.add(0.0, [float(t) for t in turns], group=0)
    while producer.rollouts:
        producer.repace(now_s, 0.5 + 0.25 * producer.rollouts)
        now_s = producer.next_s()
        producer.ended(now_s)
    assert now_s == pytest.approx(0.5 * max(turns) + 0.25 * sum(turns))
    assert producer.played_s(now_s + 7.0) == pytest.approx(now_s)  # idle time is not played


def test_a_pause_delays_what_is_played_and_counts_as_idle() -> None:
    producer = Producer(pace=1.0)
    producer.add(0.0, [4.0], group=0)
    producer.pause(1.0, until_s=3.0)
    assert producer.next_s() == 6.0
    producer.ended(6.0)
    assert producer.busy_s == 4.0


def test_the_producer_with_most_room_takes_the_next_group() -> None:
    producers = [Producer(1.0), Producer(1.0)]
    room = Room(producers, capacity=10)
    assert [room.take(5) for _ in range(5)] == [0, 1, 0, 1, None]
    room.give_back(1, 5)
    assert room.take(5) == 1
    room.give_back(0, 5)
    room.give_back(0, 5)
    assert room.take(12) == 0  # larger than the capacity: an idle producer takes it
    assert room.take(5) is None


def test_a_limit_a_minute_spaces_questions_out() -> None:
    judges = Judges(places=8, answer_s=1.0, interval_s=0.5)
    assert [judges.ask(0.0), judges.ask(0.0), judges.ask(10.0)] == [1.0, 1.5, 11.0]


def test_places_and_limits_come_from_the_endpoints() -> None:
    url = "http://127.0.0.1:1/v1"
    limited = [
        {"url": url, "concurrency": 2, "requests_per_minute": 60},
        {"url": url + "/", "concurrency": 3, "requests_per_minute": 60},
    ]
    judges = judges_of(rised(judge={"endpoints": limited}), JudgeTimes(answer_s=0.25, requests=2))
    assert judges is not None
    assert judges.places == 5
    assert [judges.ask(0.0), judges.ask(0.0)] == [0.25, 1.25]  # 2 requests a question, 120 a minute: one a second
    assert judges_of(grpo(), JudgeTimes(answer_s=1.0)) is None


def test_shared_cores_slow_everybody_alike() -> None:
    assert slowdown([1.5, 1.0], 2) == 1.25
    assert slowdown([1.5], 2) == 1.0
    assert slowdown([8.0, 8.0], 0) == 1.0  # devices of their own


def test_what_surrounds_a_generator_computes_as_often_as_it_turns() -> None:
    # 10 rollouts, a turn every 0.2 s: 50 turns a second, each of which takes 6 ms of a core.
    assert generator_demand(10, 0.2, turn_cpu_s=0.006, threads=1) == pytest.approx(1.3)
    assert generator_demand(0, 0.2, turn_cpu_s=0.006, threads=1) == 0.0


def test_what_a_turn_would_take_alone_is_worked_out_of_what_it_took() -> None:
    two = Sharing(cores=2, producers=1, threads=1, learner=1, turn_cpu_s=0.01)
    assert two.alone_s(0.2, 10, 0.0) == 0.2  # 1 + 0.5 cores are wanted: nobody waited
    assert two.alone_s(0.25, 10, 1.0) == pytest.approx(0.2)  # 2.5 cores
    assert two.alone_s(0.2, 30, 0.0) == pytest.approx(0.1)  # alone 1 + 3 = 4 cores, so twice as long
    four = msgspec.structs.replace(two, cores=4)
    assert four.alone_s(0.25, 10, 1.0) == 0.25
    pair = msgspec.structs.replace(two, producers=2)
    assert pair.alone_s(0.4, 10, 1.0) == pytest.approx(0.2)  # 2 * 1.5 + 1 = 4 cores
    assert two.alone_s(0.1, 30, 1.0) == 0.0  # less than the CPU around it: such a turn cannot be


@given(
    alone_s=st.floats(0.01, 10.0),
    rollouts=st.integers(1, 500),
    beside=st.floats(0.0, 1.0),
    cores=st.integers(1, 8),
    producers=st.integers(1, 4),
    turn_cpu_s=st.floats(0.0, 0.01),
)
@settings(deadline=None, max_examples=100)
def test_slowing_a_turn_and_taking_that_away_are_inverse(
    alone_s: float, rollouts: int, beside: float, cores: int, producers: int, turn_cpu_s: float
) -> None:
    sharing = Sharing(cores=cores, producers=producers, threads=1, learner=1, turn_cpu_s=turn_cpu_s)
    one = generator_demand(rollouts, alone_s, turn_cpu_s=turn_cpu_s, threads=1)
    slowed_s = alone_s * slowdown([one] * producers + [beside], cores)
    assert sharing.alone_s(slowed_s, rollouts, beside) == pytest.approx(alone_s)


def test_coarse_groups_keep_the_longest_and_make_up_for_the_rest() -> None:
    assert coarse([1.0, 5.0, 2.0, 9.0], 2) == [2.0, 9.0]
    worlds = [EnvironmentTimes(name="household", turns=(1.0, 3.0))]
    config = grpo(groups={"candidates": 1000, "per_update": 1000, "size": 8})
    assert grain(config, worlds, 10, 0).weight == 1
    fine = grain(config, worlds, 1000, 0)
    assert fine.weight == 4
    assert 1.0 < fine.stretch < 1.5  # the longest of four instead of each; at most 3 for 2 on average
