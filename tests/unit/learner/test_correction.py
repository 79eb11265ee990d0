from __future__ import annotations

import math

import pytest
import torch

from learner.correction import decoupled_weights, effective_sample_share, mismatch

LN2 = math.log(2)


def test_weight_is_the_capped_ratio() -> None:
    prox = torch.tensor([0.0, LN2, 10.0, -1000.0], requires_grad=True)
    weights = decoupled_weights(prox, torch.zeros(4), cap=5.0)
    assert weights.tolist() == pytest.approx([1.0, 2.0, 5.0, 0.0], abs=1e-8)
    assert not weights.requires_grad


def test_mismatch_by_hand() -> None:
    # ratios 1, 2, 1/2 and a masked NaN
    prox = torch.tensor([0.0, LN2, -LN2, float("nan")])
    found = mismatch(prox, torch.zeros(4), torch.tensor([True, True, True, False]), cap=1.5)
    assert found.tokens == 3
    assert found.kl == pytest.approx(0 + (1 - LN2) + (-0.5 + LN2))
    assert found.tv == pytest.approx((0 + 1 + 0.5) / 2)
    assert found.weight == pytest.approx(3.5)
    assert found.weight_squared == pytest.approx(1 + 4 + 0.25)
    assert found.capped == 1
    # 3.5^2 / (3 * 5.25)
    assert effective_sample_share(3, 3.5, 5.25) == pytest.approx(12.25 / 15.75)


def test_on_policy_is_no_mismatch() -> None:
    logprobs = torch.tensor([-1.0, -2.0])
    found = mismatch(logprobs, logprobs, torch.tensor([True, True]), cap=5.0)
    assert (found.kl, found.tv, found.capped) == (0, 0, 0)
    assert effective_sample_share(found.tokens, found.weight, found.weight_squared) == 1.0


def test_no_tokens_is_a_full_share() -> None:
    assert effective_sample_share(0, 0, 0) == 1.0
