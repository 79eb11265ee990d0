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
    select_mmr,
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
    assert select_mmr(pool, count, redundancy=0.5) == select_mmr(shuffled, count, redundancy=0.5)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10_000), st.integers(20, 90))
def test_nor_at_full_size_where_products_round_by_position(seed: int, size: int) -> None:
    """118 numbers a profile, many groups alike: equal scores must be told apart by id alone."""
    rng = np.random.default_rng(seed)
    kinds = rng.binomial(8, 0.3, (5, 118)).astype(float)
    names = rng.permutation(size)
    pool = [_candidate(f"g{names[i]:03d}", kinds[i % 5].tolist(), "xyz"[i % 3]) for i in range(size)]
    shuffled = [pool[i] for i in rng.permutation(size)]
    for redundancy in (0.0, 0.5, 2.0):
        assert select_rised(pool, size // 2, redundancy=redundancy, rotation=seed) == select_rised(
            shuffled, size // 2, redundancy=redundancy, rotation=seed
        )
        assert select_mmr(pool, size // 2, redundancy=redundancy) == select_mmr(
            shuffled, size // 2, redundancy=redundancy
        )


@pytest.mark.parametrize("size", range(1, 20))
def test_equal_groups_go_by_id_wherever_they_stand(size: int) -> None:
    rng = np.random.default_rng(size)
    for _ in range(5):
        profile = rng.binomial(8, 0.3, 118).astype(float).tolist()
        pool = [_candidate(f"g{i:02d}", profile) for i in range(size)]
        first = [f"g{i:02d}" for i in range((size + 1) // 2)]
        assert select_rised(pool, len(first), redundancy=0.5, rotation=0) == first
        assert select_mmr(pool, len(first), redundancy=0.5) == first


def test_mmr_by_hand() -> None:
    """target = (2,1)/sqrt(5) as for rised: a and b have cosine 0.894 with it, c 0.447.

    l = 0.5: a (tie by id); then b scores 0.447 - 0.5 * 1 = -0.053, c 0.224 - 0 = 0.224: c.
    l = 0.25: b scores 0.75 * 0.894 - 0.25 = 0.421, c 0.75 * 0.447 = 0.335: b.
    """
    pool = [_candidate("a", [1, 0]), _candidate("b", [1, 0]), _candidate("c", [0, 1])]
    assert select_mmr(pool, 2, redundancy=0.5) == ["a", "c"]
    assert select_mmr(pool, 2, redundancy=0.25) == ["a", "b"]


def test_mmr_clamps_its_weight_and_has_no_quotas() -> None:
    """Weight 1: only difference counts, so after a (first by id) comes c; above 1 it stays 1."""
    pool = [_candidate("a", [1, 0], "x"), _candidate("b", [1, 0.1], "x"), _candidate("c", [0, 1], "y")]
    assert select_mmr(pool, 2, redundancy=1.0) == select_mmr(pool, 2, redundancy=7.0) == ["a", "c"]
    assert select_mmr(pool, 2, redundancy=0.0) == ["a", "b"]
    assert select_rised(pool, 2, redundancy=0.0, rotation=0) == ["b", "c"]


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000))
def test_in_one_environment_mmr_is_rised_with_another_weight(seed: int) -> None:
    """(1 - l) * (cos - l / (1 - l) * max cos): with l = 1/3 the order is that of redundancy 1/2."""
    rng = np.random.default_rng(seed)
    pool = [_candidate(f"g{i:02d}", rng.random(12).tolist()) for i in range(20)]
    assert select_mmr(pool, 10, redundancy=1 / 3) == select_rised(pool, 10, redundancy=0.5, rotation=0)


def test_every_selection_keeps_its_count_and_invents_nobody() -> None:
    rng = np.random.default_rng(3)
    pool = [_candidate(f"g{i}", rng.random(4).tolist(), "xy"[i % 2], rng.random()) for i in range(9)]
    ids = {c.group_id for c in pool}
    for chosen in (
        select_mmr(pool, 5, redundancy=0.5),
        select_rised(pool, 5, redundancy=0.5, rotation=1),
        select_random(pool, 5, seed=1),
        select_reward_variance(pool, 5),
    ):
        assert len(set(chosen)) == 5
        assert set(chosen) <= ids


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
    with pytest.raises(ValueError, match="cannot select 2 of 1"):
        select_mmr([_candidate("a", [1])], 2, redundancy=0.5)
