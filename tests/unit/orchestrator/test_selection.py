from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rl.orchestrator.selection import (
    Candidate,
    select_all,
    select_random,
    select_reward_variance,
    select_rised,
)
from stream_rl.rubrics.profile import normalise


def _candidate(name: str, vector: list[float], environment: str = "e", std: float = 0.0) -> Candidate:
    return Candidate(
        group_id=name, environment=environment, vector=normalise(np.array(vector, np.float64)), reward_std=std
    )


def test_rised_by_hand() -> None:
    """target = normalise(mean of (1,0), (1,0), (0,1)) = (2,1)/sqrt(5).

    First pick: cos = 0.894 for a and b (tie: a). Then b scores 0.894 - 0.5 * 1 = 0.394, c scores
    0.447 - 0.5 * 0 = 0.447: c, though it is less typical, since b says nothing that a did not.
    """
    pool = [_candidate("a", [1, 0]), _candidate("b", [1, 0]), _candidate("c", [0, 1])]
    assert select_rised(pool, 2, redundancy=0.5, rotation=0) == ["a", "c"]
    assert select_rised(pool, 2, redundancy=0.0, rotation=0) == ["a", "b"]


def test_quotas_of_64_from_three_environments_are_22_21_21_and_rotate() -> None:
    rng = np.random.default_rng(0)
    pool = [_candidate(f"{env}{i:02d}", rng.random(6).tolist(), environment=env) for env in "xyz" for i in range(43)]
    extra = []
    for rotation in range(3):
        chosen = select_rised(pool, 64, redundancy=0.5, rotation=rotation)
        counts = Counter(name[0] for name in chosen)
        assert sorted(counts.values()) == [21, 21, 22]
        extra.append(max(counts, key=lambda env: counts[env]))
    assert sorted(extra) == ["x", "y", "z"]


def test_an_exhausted_environment_passes_its_turn() -> None:
    pool = [_candidate("x1", [1, 0], "x"), *(_candidate(f"y{i}", [1, i], "y") for i in range(5))]
    chosen = select_rised(pool, 4, redundancy=0.5, rotation=0)
    assert Counter(name[0] for name in chosen) == {"x": 1, "y": 3}


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10_000), st.integers(2, 12))
def test_the_choice_does_not_depend_on_arrival_order(seed: int, size: int) -> None:
    rng = random.Random(seed)
    pool = [
        _candidate(f"g{i}", [rng.choice([0, 0.5, 1]) for _ in range(4)], rng.choice("xy"), rng.random())
        for i in range(size)
    ]
    shuffled = rng.sample(pool, size)
    count = size // 2
    assert select_rised(pool, count, redundancy=0.5, rotation=seed) == select_rised(
        shuffled, count, redundancy=0.5, rotation=seed
    )
    assert select_random(pool, count, seed=seed) == select_random(shuffled, count, seed=seed)
    assert select_reward_variance(pool, count) == select_reward_variance(shuffled, count)
    assert select_all(pool, size) == select_all(shuffled, size)


def test_groups_without_tags_have_cosine_zero_and_can_still_be_chosen() -> None:
    pool = [_candidate("a", [0, 0]), _candidate("b", [0, 0]), _candidate("c", [1, 0])]
    assert select_rised(pool, 3, redundancy=0.5, rotation=0) == ["a", "b", "c"]
    assert select_rised(pool, 1, redundancy=0.5, rotation=0) == ["c"]


def test_reward_variance_prefers_mixed_groups() -> None:
    pool = [_candidate("a", [1], std=0.0), _candidate("b", [1], std=0.5), _candidate("c", [1], std=0.3)]
    assert select_reward_variance(pool, 2) == ["b", "c"]


def test_random_is_a_uniform_choice_over_seeds() -> None:
    pool = [_candidate(name, [1]) for name in "abcd"]
    counts = Counter(name for seed in range(800) for name in select_random(pool, 2, seed=seed))
    assert all(330 < counts[name] < 470 for name in "abcd")  # 400 expected, sd 14


def test_more_than_there_are_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot select 2 of 1"):
        select_rised([_candidate("a", [1])], 2, redundancy=0.5, rotation=0)
