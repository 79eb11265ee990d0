from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from learner.losses import clipped_policy_loss, entropy_bonus, k3, ratio

NAN = float("nan")


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def policy_loss(policy: Tensor, anchor: Tensor, advantages: Tensor, mask: Tensor | None = None) -> Tensor:
    return clipped_policy_loss(
        policy,
        anchor,
        advantages,
        torch.ones_like(policy),
        torch.ones_like(policy, dtype=torch.bool) if mask is None else mask,
        clip_low=0.2,
        clip_high=0.28,
        dual_clip=3.0,
    ).loss


@pytest.mark.parametrize(
    ("rho", "advantage", "loss", "gradient"),
    [
        (1.0, 2.0, -2.0, -2.0),  # on policy: d/dlogp of -rho A = -A
        (1.5, 2.0, -2.56, 0.0),  # above 1.28 with A > 0: -1.28 * 2
        (0.5, 2.0, -1.0, -1.0),  # below, A > 0: unclipped
        (0.5, -2.0, 1.6, 0.0),  # below 0.8 with A < 0: 0.8 * 2
        (1.5, -2.0, 3.0, 3.0),  # above, A < 0: unclipped
        (5.0, -2.0, 6.0, 0.0),  # dual clip: at most 3 * 2
    ],
)
def test_clip_by_hand(rho: float, advantage: float, loss: float, gradient: float) -> None:
    policy = tensor(math.log(rho)).requires_grad_()
    value = policy_loss(policy, tensor(0.0), tensor(advantage))
    value.backward()  # type: ignore[no-untyped-call]
    assert float(value.detach()) == pytest.approx(loss)
    assert policy.grad is not None
    assert float(policy.grad) == pytest.approx(gradient)


def test_clipped_tokens_are_counted() -> None:
    rho = tensor(1.0, 1.5, 0.5, 0.5, 1.5, 5.0, 1.5)
    advantages = tensor(2.0, 2.0, 2.0, -2.0, -2.0, -2.0, 0.0)
    mask = torch.ones(7, dtype=torch.bool)
    out = clipped_policy_loss(
        rho.log(), torch.zeros(7), advantages, torch.ones(7), mask, clip_low=0.2, clip_high=0.28, dual_clip=3.0
    )
    assert int(out.num_clipped) == 3


def test_weights_scale_each_token() -> None:
    out = clipped_policy_loss(
        tensor(0.0, 0.0),
        tensor(0.0, 0.0),
        tensor(1.0, 1.0),
        tensor(2.0, 0.5),
        torch.tensor([True, True]),
        clip_low=0.2,
        clip_high=0.2,
        dual_clip=3.0,
    )
    assert float(out.loss) == -2.5


def test_nothing_in_a_masked_place_matters() -> None:
    policy = tensor(-1.0, NAN, -2.0).requires_grad_()
    mask = torch.tensor([True, False, True])
    loss = policy_loss(policy, tensor(-1.0, NAN, -2.0), tensor(1.0, NAN, 1.0), mask)
    loss = loss + entropy_bonus(policy, mask)
    loss.backward()  # type: ignore[no-untyped-call]
    assert float(loss.detach()) == pytest.approx(-2.0 - 3.0)
    assert policy.grad is not None
    assert policy.grad.tolist() == [0.0, 0.0, 0.0]  # -1 from the loss, +1 from the bonus; 0 at the mask


@pytest.mark.parametrize("gap", [-1e4, -90.0, 90.0, 1e4])
@pytest.mark.parametrize("advantage", [-1.0, 1.0])
def test_extreme_ratios_stay_finite(gap: float, advantage: float) -> None:
    policy = torch.tensor([gap], dtype=torch.float32).requires_grad_()
    loss = policy_loss(policy, torch.zeros(1), torch.tensor([advantage]))
    loss.backward()  # type: ignore[no-untyped-call]
    assert policy.grad is not None
    assert torch.isfinite(loss)
    assert torch.isfinite(policy.grad).all()
    assert torch.isfinite(k3(policy.detach(), torch.zeros(1))).all()
    assert torch.isfinite(ratio(policy.detach(), torch.zeros(1))).all()


def test_k3_by_hand() -> None:
    # d = log 2: 2 - 1 - log 2
    assert float(k3(tensor(0.0), tensor(math.log(2)))) == pytest.approx(1 - math.log(2))
    assert float(k3(tensor(-3.0), tensor(-3.0))) == 0.0


def test_only_the_policy_gets_a_gradient() -> None:
    inputs = [tensor(-1.0).requires_grad_() for _ in range(4)]
    policy, anchor, advantages, weights = inputs
    mask = torch.tensor([True])
    out = clipped_policy_loss(policy, anchor, advantages, weights, mask, clip_low=0.2, clip_high=0.2, dual_clip=3.0)
    out.loss.backward()  # type: ignore[no-untyped-call]
    assert [x.grad is not None for x in inputs] == [True, False, False, False]


def finite_difference(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    step = 1e-6
    out = torch.zeros_like(x)
    for i in range(len(x)):
        up, down = x.clone(), x.clone()
        up[i] += step
        down[i] -= step
        out[i] = (f(up) - f(down)) / (2 * step)
    return out


def test_gradient_equals_finite_differences() -> None:
    generator = torch.Generator().manual_seed(0)
    policy = torch.randn(40, generator=generator, dtype=torch.float64) * 0.4
    anchor = torch.randn(40, generator=generator, dtype=torch.float64) * 0.4
    advantages = torch.randn(40, generator=generator, dtype=torch.float64)

    def f(x: Tensor) -> Tensor:
        return policy_loss(x, anchor, advantages)

    x = policy.clone().requires_grad_()
    f(x).backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    assert torch.allclose(x.grad, finite_difference(f, policy), atol=1e-7)


def test_shapes_that_do_not_fit_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"\[tokens\]"):
        policy_loss(tensor(0.0, 0.0), tensor(0.0), tensor(0.0))
