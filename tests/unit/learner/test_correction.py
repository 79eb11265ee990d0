from __future__ import annotations

import math
import random
import re
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from learner.correction import Corrected, correct, effective_sample_share, mismatch
from stream_rl.config import Algorithm
from stream_rl.config.algorithm import Correction
from stream_rl.config.corrections import DEFAULT_LIMITS, limits_of

LN2 = math.log(2)
NAN = float("nan")
METHODS: tuple[Correction, ...] = get_args(Correction)


def weigh(
    method: Correction,
    ratios: list[float],
    *,
    advantages: list[float] | None = None,
    mask: list[bool] | None = None,
    segments: list[int] | None = None,
    limits: tuple[float, ...] = (),
    behavior: float = 0.5,
) -> tuple[list[float], int, int]:
    """Weights, rejected and capped tokens for ratios prox / mu with mu the same everywhere; one sequence by default."""
    size = len(ratios)
    mu = torch.full((size,), math.log(behavior), dtype=torch.float64)
    out = correct(
        mu + torch.tensor(ratios, dtype=torch.float64).log(),
        mu,
        torch.tensor(advantages or [1.0] * size, dtype=torch.float64),
        torch.tensor(mask or [True] * size, dtype=torch.bool),
        torch.tensor(segments or [0] * size, dtype=torch.int64),
        Algorithm(correction=method, correction_limits=limits),
    )
    return out.weights_T.tolist(), int(out.num_rejected), int(out.num_capped)


def assert_weights(found: tuple[list[float], int, int], weights: list[float], *, rejected: int, capped: int) -> None:
    assert found[0] == pytest.approx(weights)
    assert found[1:] == (rejected, capped)


def test_decoupled_caps_each_token() -> None:
    # 5 is the cap itself, not above it
    assert_weights(weigh("decoupled", [1.0, 2.0, 9.0, 0.01]), [1.0, 2.0, 5.0, 0.01], rejected=0, capped=1)
    assert_weights(weigh("decoupled", [1.0, 3.0], limits=(2.0,)), [1.0, 2.0], rejected=0, capped=1)


def test_none_weighs_everything_one() -> None:
    assert_weights(weigh("none", [1.0, 9.0, 1e-6]), [1.0, 1.0, 1.0], rejected=0, capped=0)


def test_tis_token_caps_at_two() -> None:
    assert_weights(weigh("tis_token", [1.5, 9.0, 0.01]), [1.5, 2.0, 0.01], rejected=0, capped=1)


def test_tis_sequence_caps_the_product() -> None:
    # 2 * 3 / 4 = 1.5 on both tokens of sequence 0; 4 * 2 = 8, cut to 5, on both of sequence 1
    found = weigh("tis_sequence", [2.0, 0.75, 4.0, 2.0], segments=[0, 0, 1, 1])
    assert_weights(found, [1.5, 1.5, 5.0, 5.0], rejected=0, capped=2)


def test_tis_sequence_leaves_masked_tokens_out_of_the_product() -> None:
    found = weigh("tis_sequence", [2.0, 100.0, 0.75], mask=[True, False, True])
    assert_weights(found, [1.5, 0.0, 1.5], rejected=0, capped=0)


def test_icepop_drops_tokens_outside() -> None:
    found = weigh("icepop", [0.49, 0.51, 1.0, 4.9, 5.1])
    assert_weights(found, [0.0, 0.51, 1.0, 4.9, 0.0], rejected=2, capped=0)


def test_mis_sequence_drops_sequences_outside() -> None:
    # products 3 * 0.5 = 1.5: kept and weighed so; 1.5 * 1.5 = 2.25: above 2; 0.6 * 0.8 = 0.48: below 0.5
    found = weigh("mis_sequence", [3.0, 0.5, 1.5, 1.5, 0.6, 0.8], segments=[0, 0, 1, 1, 2, 2])
    assert_weights(found, [1.5, 1.5, 0.0, 0.0, 0.0, 0.0], rejected=4, capped=0)


def test_geometric_drops_sequences_whose_mean_ratio_is_outside() -> None:
    # sqrt(2 * 0.505) = 1.00499: kept, at weight 1; sqrt(1.03 * 1) = 1.0149; sqrt(0.97 * 1) = 0.985
    found = weigh("geometric", [2.0, 0.505, 1.03, 1.0, 0.97, 1.0], segments=[0, 0, 1, 1, 2, 2])
    assert_weights(found, [1.0, 1.0, 0.0, 0.0, 0.0, 0.0], rejected=4, capped=0)


def test_m2po_drops_the_largest_moments() -> None:
    # log r = 0.1, 0.2, 0.3, 0.4; squares 0.01, 0.04, 0.09, 0.16; means of the smallest: 0.01, 0.025, 0.0467, 0.075:
    # with tau 0.04 the two largest go
    ratios = [math.exp(x) for x in (0.4, 0.1, 0.3, 0.2)]
    assert_weights(weigh("m2po", ratios), [0.0, math.exp(0.1), 0.0, math.exp(0.2)], rejected=2, capped=0)


def test_m2po_looks_only_at_tokens_a_clip_could_cut() -> None:
    # A < 0 with r > 1, and A > 0 with r < 1, stay, however far; the first is capped at 5. A < 0 with r < 1 goes.
    found = weigh("m2po", [9.0, 0.1, 0.1, 1.1], advantages=[-1.0, 1.0, -1.0, 1.0])
    assert_weights(found, [5.0, 0.1, 0.0, 1.1], rejected=1, capped=1)


def test_m2po_drops_equal_moments_together() -> None:
    # squares 0.01, 0.09, 0.09: one of the equal two would fit (mean 0.05), both do not (0.063), and neither is first
    ratios = [math.exp(x) for x in (0.3, 0.1, 0.3)]
    assert_weights(weigh("m2po", ratios, limits=(0.055,)), [0.0, math.exp(0.1), 0.0], rejected=2, capped=0)


def test_tv_mask_drops_what_moved_the_way_of_its_advantage() -> None:
    # mu = 0.5; prox 0.75 moved by +0.25, 0.25 by -0.25, 0.65 by +0.15
    ratios = [1.5, 1.5, 0.5, 0.5, 1.3, 1.5]
    found = weigh("tv_mask", ratios, advantages=[1.0, -1.0, 1.0, -1.0, 1.0, 0.0])
    assert_weights(found, [0.0, 1.5, 0.5, 0.0, 1.3, 1.5], rejected=2, capped=0)
    # the same ratio is no move where the token is rare: 0.01 to 0.015
    assert_weights(weigh("tv_mask", [1.5, 9.0], behavior=0.01), [1.5, 5.0], rejected=0, capped=1)


def test_veto_drops_sequences_holding_an_impossible_token() -> None:
    found = weigh("veto", [1.0, 5e-5, 3.0, 2e-4], segments=[0, 0, 1, 1])
    assert_weights(found, [0.0, 0.0, 1.0, 1.0], rejected=2, capped=0)


def test_a_veto_ignores_masked_tokens() -> None:
    assert_weights(weigh("veto", [1.0, 1e-9], mask=[True, False]), [1.0, 0.0], rejected=0, capped=0)


@st.composite
def batches(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor, Tensor, list[int]]:
    """Prox, mu, advantages, mask, and the lengths of the sequences."""
    lengths = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    size = sum(lengths)
    logprobs = st.lists(st.floats(-6, 0, width=32), min_size=size, max_size=size)
    prox, mu = (torch.tensor(draw(logprobs), dtype=torch.float64) for _ in range(2))
    # near mu as often as far: the narrow bounds of `geometric` would reject everything else
    prox = mu + (prox - mu) * draw(st.sampled_from([0.002, 0.1, 1.0]))
    advantages = torch.tensor(draw(st.lists(st.sampled_from([-1.0, 0.0, 2.0]), min_size=size, max_size=size)))
    mask = torch.tensor(draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    return prox, mu, advantages, mask, lengths


def numbered(lengths: list[int]) -> Tensor:
    return torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))


@settings(deadline=None, max_examples=60)
@given(method=st.sampled_from(METHODS), batch=batches())
def test_masked_places_change_nothing(
    method: Correction, batch: tuple[Tensor, Tensor, Tensor, Tensor, list[int]]
) -> None:
    prox, mu, advantages, mask, lengths = batch
    algorithm, segments = Algorithm(correction=method), numbered(lengths)
    hidden = [torch.where(mask, x, NAN) for x in (prox, mu, advantages)]
    full = correct(hidden[0], hidden[1], hidden[2], mask, segments, algorithm)
    alone = correct(prox[mask], mu[mask], advantages[mask], mask[mask], segments[mask], algorithm)
    assert torch.equal(full.weights_T[mask], alone.weights_T)
    assert full.weights_T[~mask].count_nonzero() == 0
    assert (full.num_rejected, full.num_capped) == (alone.num_rejected, alone.num_capped)


@settings(deadline=None, max_examples=60)
@given(method=st.sampled_from(METHODS), batch=batches(), shuffler=st.randoms(use_true_random=False))
def test_the_order_of_sequences_does_not_matter(
    method: Correction, batch: tuple[Tensor, Tensor, Tensor, Tensor, list[int]], shuffler: random.Random
) -> None:
    *arrays, lengths = batch
    order = list(range(len(lengths)))
    shuffler.shuffle(order)
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    moved = torch.tensor([t for i in order for t in range(starts[i], starts[i] + lengths[i])])

    def weights(arrays: list[Tensor], lengths: list[int]) -> Corrected:
        prox, mu, advantages, mask = arrays
        return correct(prox, mu, advantages, mask, numbered(lengths), Algorithm(correction=method))

    before = weights(arrays, lengths)
    after = weights([x[moved] for x in arrays], [lengths[i] for i in order])
    assert torch.equal(before.weights_T[moved], after.weights_T)
    assert (before.num_rejected, before.num_capped) == (after.num_rejected, after.num_capped)


@settings(deadline=None, max_examples=60)
@given(method=st.sampled_from(METHODS), batch=batches())
def test_on_policy_every_weight_is_one(
    method: Correction, batch: tuple[Tensor, Tensor, Tensor, Tensor, list[int]]
) -> None:
    prox, _, advantages, mask, lengths = batch
    out = correct(prox, prox, advantages, mask, numbered(lengths), Algorithm(correction=method))
    assert out.weights_T.tolist() == mask.double().tolist()
    assert (int(out.num_rejected), int(out.num_capped)) == (0, 0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("gap", [-1e4, -90.0, 90.0, 1e4])
def test_extreme_ratios_stay_finite_and_detached(method: Correction, gap: float) -> None:
    prox = torch.full((600,), gap, requires_grad=True)
    mask, segments = torch.ones(600, dtype=torch.bool), torch.arange(600) // 300
    out = correct(prox, torch.zeros(600), torch.ones(600), mask, segments, Algorithm(correction=method))
    assert torch.isfinite(out.weights_T).all()
    assert (out.weights_T >= 0).all()
    assert out.weights_T.dtype == torch.float32
    assert not out.weights_T.requires_grad


@pytest.mark.parametrize("method", METHODS)
def test_no_tokens_have_no_weights(method: Correction) -> None:
    assert_weights(weigh(method, []), [], rejected=0, capped=0)


def test_every_method_has_constants() -> None:
    assert set(DEFAULT_LIMITS) == set(METHODS)
    for method in METHODS:
        assert limits_of(Algorithm(correction=method)) == DEFAULT_LIMITS[method]


@pytest.mark.parametrize(
    ("method", "limits", "message"),
    [
        ("icepop", (0.5,), "'icepop' has 2 constants, published (0.5, 5.0); got (0.5,)"),
        ("none", (1.0,), "'none' has 0 constants"),
        ("geometric", (1.01, 0.99), "need low <= 1 <= high, got (1.01, 0.99)"),
        ("mis_sequence", (1.5, 2.0), "need low <= 1 <= high"),
        ("veto", (2.0,), "need at most 1, got 2"),
    ],
)
def test_limits_that_cannot_work_are_refused(method: Correction, limits: tuple[float, ...], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        limits_of(Algorithm(correction=method, correction_limits=limits))


def test_shapes_that_do_not_fit_are_an_error() -> None:
    one, two = torch.zeros(1), torch.zeros(2)
    mask, segments = torch.ones(2, dtype=torch.bool), torch.zeros(2, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"\[tokens\]"):
        correct(one, two, two, mask, segments, Algorithm())


def test_mismatch_by_hand() -> None:
    # ratios 1, 2, 1/2 and a masked NaN
    prox = torch.tensor([0.0, LN2, -LN2, NAN])
    found = mismatch(prox, torch.zeros(4), torch.tensor([True, True, True, False]))
    assert found.tokens == 3
    assert found.kl == pytest.approx(0 + (1 - LN2) + (-0.5 + LN2))
    assert found.tv == pytest.approx((0 + 1 + 0.5) / 2)
    assert found.weight == pytest.approx(3.5)
    assert found.weight_squared == pytest.approx(1 + 4 + 0.25)
    # 3.5^2 / (3 * 5.25)
    assert effective_sample_share(3, 3.5, 5.25) == pytest.approx(12.25 / 15.75)


def test_on_policy_is_no_mismatch() -> None:
    logprobs = torch.tensor([-1.0, -2.0])
    found = mismatch(logprobs, logprobs, torch.tensor([True, True]))
    assert (found.kl, found.tv) == (0, 0)
    assert effective_sample_share(found.tokens, found.weight, found.weight_squared) == 1.0


def test_no_tokens_is_a_full_share() -> None:
    assert effective_sample_share(0, 0, 0) == 1.0
