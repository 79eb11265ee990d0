from __future__ import annotations

import itertools
import math
import random
import statistics
from collections import Counter
from typing import get_args, get_type_hints

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stream_rl.config import Algorithm
from stream_rl.rubrics.alignment import Alignment, Choice, choose_bundle, satisfaction, spearman

NAN = math.nan

# Few distinct values, so that ties are common; gaps wide enough for monotone maps to keep them apart.
values = st.integers(-4, 4).map(float)
pairs = st.lists(st.tuples(values, values), max_size=12)


def choose(
    bundles: list[list[float | None]],
    outcomes: list[float | None],
    choice: Choice = "aligned",
    min_rho: float = 0.0,
    seed: int = 0,
    group_id: str = "g",
) -> Alignment:
    return choose_bundle(bundles, outcomes, choice=choice, min_rho=min_rho, seed=seed, group_id=group_id)


def test_without_ties_it_is_the_textbook_formula() -> None:
    """Ranks 1 2 3 4 5 against 2 1 4 3 5: 1 - 6 * (1 + 1 + 1 + 1 + 0) / (5 * 24) = 0.8."""
    assert spearman([10, 20, 30, 40, 50], [0.2, 0.1, 0.4, 0.3, 0.5]) == pytest.approx(0.8, abs=1e-15)


def test_ties_share_the_average_rank() -> None:
    """x ranks 1, 2.5, 2.5, 4; outcomes 0 0 1 1 rank 1.5, 1.5, 3.5, 3.5.

    Deviations -1.5 0 0 1.5 and -1 -1 1 1: covariance sum 3, variance sums 4.5 and 4, rho = 3 / sqrt(18) = 0.7071.
    """
    assert spearman([0.1, 0.5, 0.5, 0.9], [0, 0, 1, 1]) == pytest.approx(1 / math.sqrt(2), abs=1e-15)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ([], []),
        ([1.0], [1.0]),
        ([1.0, 1.0, 1.0], [0.0, 1.0, 0.0]),
        ([0.0, 1.0, 0.0], [1.0, 1.0, 1.0]),
        ([0.5, None, NAN], [0.0, 1.0, 1.0]),
        ([0.5, 0.6, 0.7], [1.0, 1.0, None]),
    ],
)
def test_where_a_side_is_constant_or_too_short_it_is_undefined(x: list[float | None], y: list[float | None]) -> None:
    assert spearman(x, y) is None


def test_pairs_with_a_missing_value_are_left_out_before_ranking() -> None:
    """What is left is (1, 0), (2, 1), (3, 2), though 9 and 8 would break the order."""
    assert spearman([1, None, 2, 9, 3, 8], [0, 5, 1, NAN, 2, None]) == 1.0


def test_a_missing_side_is_an_error_not_a_short_correlation() -> None:
    with pytest.raises(ValueError, match="3 on one side, 2 on the other"):
        spearman([1, 2, 3], [1, 2])


@settings(deadline=None, max_examples=150)
@given(pairs, st.randoms(use_true_random=False))
def test_bounded_symmetric_and_unchanged_by_permutation_and_monotone_maps(
    data: list[tuple[float, float]], rng: random.Random
) -> None:
    x, y = [a for a, _ in data], [b for _, b in data]
    rho = spearman(x, y)
    assert rho is None or -1 <= rho <= 1
    assert spearman(y, x) == rho
    shuffled = rng.sample(data, len(data))
    assert spearman([a for a, _ in shuffled], [b for _, b in shuffled]) == rho
    assert spearman([math.exp(a) for a in x], [b**3 - 7 for b in y]) == rho
    assert spearman([-a for a in x], y) == (None if rho is None else -rho)
    assert spearman(x, x) in (None, 1.0)


@settings(deadline=None, max_examples=100)
@given(pairs)
@example([(0.0, 0.0), (0.0, 1.0), (1.0, 1.0)])
def test_agrees_with_pearson_of_ranks(data: list[tuple[float, float]]) -> None:
    """The definition, in floating point: the average rank is (values below) + (values equal + 1) / 2."""
    x, y = [a for a, _ in data], [b for _, b in data]
    rho = spearman(x, y)
    if rho is not None:
        ranks = [[sum(b < a for b in side) + (side.count(a) + 1) / 2 for a in side] for side in (x, y)]
        assert rho == pytest.approx(statistics.correlation(*ranks), abs=1e-12)


def test_agrees_with_scipy() -> None:
    stats = pytest.importorskip("scipy.stats", reason="scipy is not installed")
    rng = random.Random(0)
    for _ in range(50):
        x = [rng.randrange(5) / 4 for _ in range(8)]
        y = [float(rng.random() < 0.5) for _ in range(8)]
        rho = spearman(x, y)
        if rho is not None:
            assert rho == pytest.approx(float(stats.spearmanr(x, y).statistic), abs=1e-12)


def test_satisfaction_is_the_mean_of_the_scores_there_are() -> None:
    assert satisfaction([0.25, None, 0.75, NAN]) == 0.5
    assert satisfaction([0.0, None]) == 0.0
    assert satisfaction([None, NAN]) is None
    assert satisfaction([]) is None


def test_equal_decimal_means_tie() -> None:
    """0.7 + 0.8 + 0.9 and 3 * 0.8 differ in binary; a judge that gave either said the same on average."""
    assert satisfaction([0.9, 0.7, 0.8]) == satisfaction([0.8, 0.8, 0.8]) == satisfaction([0.1 + 0.2 + 0.5]) == 0.8


def test_aligned_takes_the_highest_correlation() -> None:
    """Outcomes 0 0 1 1. Against it, for it with one slip (ranks 1 3 2 4: 2 / sqrt(20)), and fully for it."""
    bundles: list[list[float | None]] = [[0.9, 0.8, 0.2, 0.1], [0.1, 0.3, 0.2, 0.4], [0.1, 0.2, 0.8, 0.9]]
    chosen = choose(bundles, [0, 0, 1, 1])
    full = 2 / math.sqrt(5)  # deviations -1.5 -.5 .5 1.5 and -1 -1 1 1: 4 / sqrt(5 * 4)
    assert (chosen.index, chosen.reason) == (2, "aligned")
    assert chosen.rho == pytest.approx(full)
    assert chosen.rhos == pytest.approx((-full, full / 2, full))


def test_equal_correlations_keep_the_first_bundle() -> None:
    assert choose([[0.5, 0.5], [0.1, 0.2], [0.3, 0.9]], [0, 1]).index == 1


def test_a_bundle_that_is_not_defined_is_passed_over() -> None:
    chosen = choose([[0.5, 0.5, 0.5], [None, 0.4, None], [0.3, 0.1, 0.9]], [0, 0, 1])
    assert chosen.index == 2
    assert chosen.rhos[:2] == (None, None)


def test_why_nothing_is_chosen() -> None:
    assert choose([], [0, 1]) == Alignment(index=None, rho=None, rhos=(), reason="no_bundle")
    same = choose([[0.1, 0.9], [0.3, 0.2]], [1, 1])
    assert same == Alignment(index=None, rho=None, rhos=(None, None), reason="undefined")
    against = choose([[0.9, 0.1], [0.5, 0.5]], [0, 1])
    assert against == Alignment(index=None, rho=None, rhos=(-1.0, None), reason="below_min_rho")


def test_min_rho_is_the_lowest_that_is_kept() -> None:
    bundles: list[list[float | None]] = [[0.1, 0.5, 0.5, 0.1]]  # ranks 1.5 3.5 3.5 1.5 against outcomes 0 0 1 1: 0
    assert choose(bundles, [0, 0, 1, 1], min_rho=0.0).index == 0
    assert choose(bundles, [0, 0, 1, 1], min_rho=0.01).index is None
    assert choose([[0.9, 0.1]], [0, 1], min_rho=-1.0).index == 0


def test_single_takes_the_first_whatever_it_correlates_with() -> None:
    assert choose([[0.9, 0.1], [0.1, 0.9]], [0, 1], "single", min_rho=0.5) == Alignment(
        index=0, rho=-1.0, rhos=(-1.0, 1.0), reason="single"
    )
    unscored = choose([[None, None]], [1, 1], "single")
    assert (unscored.index, unscored.rho) == (0, None)
    assert choose([], [0, 1], "single").reason == "no_bundle"


def test_random_is_uniform_over_groups_and_fixed_by_seed_and_group() -> None:
    bundles: list[list[float | None]] = [[None, None]] * 4
    picks = [choose(bundles, [0, 1], "random", group_id=f"g{i}") for i in range(800)]
    assert picks == [choose(bundles, [1, 0], "random", group_id=f"g{i}") for i in range(800)]
    counts = Counter(p.index for p in picks)
    assert all(140 < counts[i] < 260 for i in range(4))  # 200 expected, sd 12
    other = [choose(bundles, [0, 1], "random", group_id=f"g{i}", seed=1) for i in range(800)]
    assert other != picks
    assert {p.reason for p in picks} == {"random"}


def test_members_that_do_not_fit_are_an_error() -> None:
    with pytest.raises(ValueError, match="group g: bundle 1 has satisfaction of 3 members, outcomes of 2"):
        choose([[0.1, 0.2], [0.1, 0.2, 0.3]], [0, 1])


def test_the_choices_are_those_of_the_configuration() -> None:
    assert get_args(Choice) == get_args(get_type_hints(Algorithm)["bundle_choice"])


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.lists(st.one_of(st.none(), values), min_size=6, max_size=6), max_size=4),
    st.lists(values, min_size=6, max_size=6),
    st.permutations(range(6)),
)
def test_the_choice_does_not_depend_on_the_order_of_members(
    bundles: list[list[float | None]], outcomes: list[float], order: list[int]
) -> None:
    moved = [[bundle[i] for i in order] for bundle in bundles]
    assert choose(moved, [outcomes[i] for i in order]) == choose(bundles, [*outcomes])


def test_best_of_four_under_noise_averages_about_0_39() -> None:
    """Four bundles that know nothing, G = 8, half the members succeed.

    Exactly: the four successes hold any 4 of the ranks 1..8 with equal chance (70 cases). With their rank sum s the
    covariance sum is s - 18, the squared deviations sum to 42 for the ranks and 2 for the outcomes (+-1/2), so
    rho = (s - 18) / sqrt(84). The mean of the best of four draws follows from the distribution function. Sampling
    adds an error of sd / sqrt(groups); the best of four spreads less than one, whose sd is 1 / sqrt(7) = 0.378.
    """
    cases = sorted((sum(chosen) - 18) / math.sqrt(84) for chosen in itertools.combinations(range(1, 9), 4))
    n = len(cases)
    exact = sum(rho * (((i + 1) / n) ** 4 - (i / n) ** 4) for i, rho in enumerate(cases))
    assert exact == pytest.approx(0.39, abs=0.01)

    rng = random.Random(0)
    groups = 1500
    outcomes: list[float | None] = [1, 1, 1, 1, 0, 0, 0, 0]
    best = []
    for i in range(groups):
        noise: list[list[float | None]] = [[rng.random() for _ in range(8)] for _ in range(4)]
        best.append(choose(noise, outcomes, min_rho=-1.0, group_id=str(i)).rho or 0.0)
    assert statistics.fmean(best) == pytest.approx(exact, abs=4 * 0.378 / math.sqrt(groups))
