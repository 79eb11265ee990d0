from __future__ import annotations

import math

from stream_rl.config import Algorithm
from stream_rl.orchestrator.choosing import choose, hint_for
from stream_rl.orchestrator.flight import Flight
from tests.unit.records import RUBRICS, flight, row, trajectory, verdict


def test_lag_counts_from_the_oldest_token_of_any_valid_member() -> None:
    group = Flight(row=row(round_=7), stage="produced")
    for t in (
        trajectory(member=0, versions=(6, 7)),
        trajectory(member=1, versions=(5, 6)),
        trajectory(member=2, versions=(1,), error="broke"),
    ):
        group.trajectories[t.id] = t
    assert group.oldest_version == 5
    assert group.lag == 2


def test_invalid_members_are_in_no_statistic() -> None:
    group = flight("g", (True, False))
    broken = trajectory("g", 2, error="broke")
    group.trajectories[broken.id] = broken
    assert group.success_rate == 0.5
    assert math.isclose(group.reward_std, math.sqrt(0.5))
    assert [t.member for t in group.valid] == [0, 1]


def test_the_hint_is_the_most_frequent_positives_with_support() -> None:
    """a.two positive in 3 rollouts, a.one in 2, b.three in 1: support 2 keeps two, the most frequent first."""
    group = flight("g", (True, True, False))
    tags = [{"a.two": "positive", "a.one": "positive"}, {"a.two": "positive", "a.one": "positive"}]
    for t, tag in zip(group.valid, [*tags, {"a.two": "positive", "b.three": "positive"}], strict=True):
        group.verdicts[t.id] = verdict(t.id, tag)  # type: ignore[arg-type]
    rised = Algorithm(distillation="rised", hint_support=2, hint_top_k=4)
    assert hint_for(group, rised, RUBRICS) == ("a.two", "a.one")
    assert hint_for(group, Algorithm(distillation="rised", hint_support=3), RUBRICS) == ("a.two",)
    assert hint_for(group, Algorithm(distillation="rised", hint_support=4), RUBRICS) is None
    assert hint_for(group, Algorithm(distillation="none"), RUBRICS) is None


def test_choosing_works_without_a_judge() -> None:
    flights = [flight("g0", (True, True)), flight("g1", (True, False)), flight("g2", (False, False))]
    assert choose(flights, 1, Algorithm(selection="reward_variance"), (), seed=0, round_=0) == ["g1"]
    assert choose(flights, 3, Algorithm(selection="all"), (), seed=0, round_=0) == ["g0", "g1", "g2"]
