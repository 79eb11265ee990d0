from __future__ import annotations

import math
from collections.abc import Callable
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from learner.losses import entropy_bonus, k3, policy_loss, ratio, reference_kl
from stream_rl.config import Algorithm
from stream_rl.config.algorithm import PolicyLossName

NAN = float("nan")
LN2 = math.log(2)
LOSSES: tuple[PolicyLossName, ...] = get_args(PolicyLossName)
CLIP, CISPO, GSPO = (Algorithm(loss=name) for name in LOSSES)
WIDE_GSPO = Algorithm(loss="gspo", gspo_low=0.2, gspo_high=0.28)


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def run(
    algorithm: Algorithm,
    policy: Tensor,
    anchor: Tensor,
    advantages: Tensor,
    *,
    weights: Tensor | None = None,
    mask: Tensor | None = None,
    segments: Tensor | None = None,
) -> tuple[float, list[float], int]:
    """Loss, its gradient by policy, and the clipped tokens; without segments all tokens are one sequence."""
    x = policy.clone().requires_grad_()
    out = policy_loss(
        x,
        anchor,
        advantages,
        torch.ones_like(policy) if weights is None else weights,
        torch.ones(len(policy), dtype=torch.bool) if mask is None else mask,
        torch.zeros(len(policy), dtype=torch.int64) if segments is None else segments,
        algorithm,
    )
    (gradient,) = torch.autograd.grad(out.loss, x)
    return float(out.loss.detach()), gradient.tolist(), int(out.num_clipped)


def assert_found(found: tuple[float, list[float], int], loss: float, gradient: list[float], clipped: int) -> None:
    assert found[0] == pytest.approx(loss)
    assert found[1] == pytest.approx(gradient)
    assert found[2] == clipped


@pytest.mark.parametrize(
    ("rho", "advantage", "loss", "gradient", "clipped"),
    [
        (1.0, 2.0, -2.0, -2.0, 0),  # on policy: d/dlogp of -rho A = -A
        (1.5, 2.0, -2.56, 0.0, 1),  # above 1.28 with A > 0: -1.28 * 2
        (0.5, 2.0, -1.0, -1.0, 0),  # below, A > 0: unclipped
        (0.5, -2.0, 1.6, 0.0, 1),  # below 0.8 with A < 0: 0.8 * 2
        (1.5, -2.0, 3.0, 3.0, 0),  # above, A < 0: unclipped
        (5.0, -2.0, 6.0, 0.0, 1),  # dual clip: at most 3 * 2
        (1.5, 0.0, 0.0, 0.0, 0),  # no advantage, nothing to cut
    ],
)
def test_clip_by_hand(rho: float, advantage: float, loss: float, gradient: float, clipped: int) -> None:
    found = run(CLIP, tensor(math.log(rho)), tensor(0.0), tensor(advantage))
    assert_found(found, loss, [gradient], clipped)


@pytest.mark.parametrize(
    ("rho", "advantage", "factor", "clipped"),
    [
        (1.0, 2.0, 1.0, 0),
        (3.0, 2.0, 3.0, 0),  # clip would have cut this one off
        (9.0, 2.0, 6.0, 1),  # cap 6: shortened, not removed
        (9.0, -2.0, 6.0, 1),
        (0.01, -2.0, 0.01, 0),  # no lower bound
        (9.0, 0.0, 6.0, 0),
    ],
)
def test_cispo_by_hand(rho: float, advantage: float, factor: float, clipped: int) -> None:
    # pi = 1/2, so the loss is -factor * A * log(1/2), and its gradient -factor * A
    found = run(CISPO, tensor(-LN2), tensor(-LN2 - math.log(rho)), tensor(advantage))
    assert_found(found, factor * advantage * LN2, [-factor * advantage], clipped)


def test_gspo_by_hand() -> None:
    # Sequence 0: log rho = log 2, -log 2, 3 log(1.1), mean log 1.1: s = 1.1, inside 0.8 .. 1.28.
    # Sequence 1: log rho = log 2 and log 2: s = 2; A > 0 is cut at 1.28, A < 0 is not.
    log_rho = tensor(LN2, -LN2, 3 * math.log(1.1), LN2, LN2)
    loss, gradient, clipped = run(
        WIDE_GSPO,
        log_rho - 3,
        torch.full_like(log_rho, -3),
        tensor(1.0, 1.0, 2.0, 1.0, -1.0),
        segments=torch.tensor([0, 0, 0, 1, 1]),
    )
    assert loss == pytest.approx(-1.1 - 1.1 - 2.2 - 1.28 + 2.0)
    assert gradient == pytest.approx([-1.1, -1.1, -2.2, 0.0, 2.0])
    assert clipped == 1


def test_gspo_means_over_the_loss_tokens_alone() -> None:
    # log rho of the loss tokens: log 1.2 and 0, mean log sqrt(1.2)
    loss, gradient, _ = run(
        WIDE_GSPO,
        tensor(math.log(1.2), 5.0, 0.0),
        tensor(0.0, 0.0, 0.0),
        tensor(1.0, 1.0, 1.0),
        mask=torch.tensor([True, False, True]),
    )
    s = math.sqrt(1.2)
    assert loss == pytest.approx(-2 * s)
    assert gradient == pytest.approx([-s, 0.0, -s])


def test_gspo_bounds_are_kept_in_single_precision() -> None:
    # s = 1.00035 is inside 1.0004, though log-probabilities of -15 are only known to 1e-6
    policy = torch.full((4,), -15.0)
    loss, gradient, clipped = run(GSPO, policy, policy - math.log(1.00035), torch.ones(4))
    assert clipped == 0
    assert loss == pytest.approx(-4 * 1.00035, abs=1e-5)
    assert gradient == pytest.approx([-1.00035] * 4, abs=1e-5)


@pytest.mark.parametrize("algorithm", [CLIP, CISPO, GSPO], ids=LOSSES)
def test_weights_scale_each_token(algorithm: Algorithm) -> None:
    policy = tensor(-1.0, -2.0)
    _, gradient, _ = run(algorithm, policy, policy, tensor(1.0, 3.0), weights=tensor(2.0, 0.5))
    assert gradient == pytest.approx([-2.0, -1.5])


@settings(deadline=None, max_examples=30)
@given(data=st.data(), name=st.sampled_from(LOSSES))
def test_on_policy_every_loss_is_the_policy_gradient(data: st.DataObject, name: PolicyLossName) -> None:
    size = data.draw(st.integers(1, 8))
    floats = st.lists(st.floats(-4, 4), min_size=size, max_size=size)
    policy, advantages = tensor(*data.draw(floats)), tensor(*data.draw(floats))
    segments = torch.tensor(sorted(data.draw(st.lists(st.integers(0, 2), min_size=size, max_size=size))))
    _, gradient, clipped = run(Algorithm(loss=name), policy, policy, advantages, segments=segments)
    assert gradient == pytest.approx((-advantages).tolist())
    assert clipped == 0


@settings(deadline=None, max_examples=40)
@given(data=st.data(), name=st.sampled_from(LOSSES))
def test_nothing_in_a_masked_place_matters(data: st.DataObject, name: PolicyLossName) -> None:
    size = data.draw(st.integers(1, 8))
    floats = st.lists(st.floats(-3, 3), min_size=size, max_size=size)
    mask = torch.tensor(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    segments = torch.tensor(sorted(data.draw(st.lists(st.integers(0, 2), min_size=size, max_size=size))))
    arrays = [tensor(*data.draw(floats)) for _ in range(4)]
    policy, anchor, advantages, weights = (torch.where(mask, x, NAN) for x in arrays)
    algorithm = Algorithm(loss=name)
    loss, gradient, clipped = run(algorithm, policy, anchor, advantages, weights=weights, mask=mask, segments=segments)
    policy, anchor, advantages, weights = (x[mask] for x in arrays)  # the same tokens, alone
    alone = run(algorithm, policy, anchor, advantages, weights=weights, segments=segments[mask])
    assert_found((loss, torch.tensor(gradient)[mask].tolist(), clipped), *alone)
    assert torch.tensor(gradient)[~mask].count_nonzero() == 0


@pytest.mark.parametrize("gap", [-1e4, -90.0, 90.0, 1e4])
@pytest.mark.parametrize("advantage", [-1.0, 1.0])
@pytest.mark.parametrize("algorithm", [CLIP, CISPO, GSPO], ids=LOSSES)
def test_extreme_ratios_stay_finite(gap: float, advantage: float, algorithm: Algorithm) -> None:
    policy = torch.tensor([gap], dtype=torch.float32)
    loss, gradient, _ = run(algorithm, policy, torch.zeros(1), torch.tensor([advantage]))
    assert math.isfinite(loss)
    assert math.isfinite(gradient[0])
    kl = reference_kl(policy.requires_grad_(), torch.zeros(1), torch.tensor([True]))
    assert torch.isfinite(kl)
    assert torch.isfinite(torch.autograd.grad(kl, policy)[0]).all()
    assert torch.isfinite(ratio(policy.detach(), torch.zeros(1))).all()


def test_k3_by_hand() -> None:
    # d = log 2: 2 - 1 - log 2
    assert float(k3(tensor(0.0), tensor(LN2))) == pytest.approx(1 - LN2)
    assert float(k3(tensor(-3.0), tensor(-3.0))) == 0.0


def test_reference_kl_by_hand() -> None:
    # d = log ref - log pi: log 2, 0, masked, -log 2; k3: 1 - log 2, 0, and 1/2 - 1 + log 2; gradient 1 - exp(d)
    policy = tensor(-1.0, -1.0, NAN, -1.0).requires_grad_()
    reference = tensor(-1.0 + LN2, -1.0, NAN, -1.0 - LN2).requires_grad_()
    kl = reference_kl(policy, reference, torch.tensor([True, True, False, True]))
    kl.backward()  # type: ignore[no-untyped-call]
    assert float(kl.detach()) == pytest.approx(0.5)
    assert policy.grad is not None
    assert policy.grad.tolist() == pytest.approx([-1.0, 0.0, 0.0, 0.5])
    assert reference.grad is None


def test_entropy_bonus_is_the_masked_sum() -> None:
    entropy = tensor(1.5, NAN, 0.25).requires_grad_()
    bonus = entropy_bonus(entropy, torch.tensor([True, False, True]))
    bonus.backward()  # type: ignore[no-untyped-call]
    assert float(bonus.detach()) == 1.75
    assert entropy.grad is not None
    assert entropy.grad.tolist() == [1.0, 0.0, 1.0]


@pytest.mark.parametrize("algorithm", [CLIP, CISPO, GSPO], ids=LOSSES)
def test_only_the_policy_gets_a_gradient(algorithm: Algorithm) -> None:
    inputs = [tensor(-1.0).requires_grad_() for _ in range(4)]
    policy, anchor, advantages, weights = inputs
    out = policy_loss(
        policy, anchor, advantages, weights, torch.tensor([True]), torch.zeros(1, dtype=torch.int64), algorithm
    )
    out.loss.backward()  # type: ignore[no-untyped-call]
    assert [x.grad is not None for x in inputs] == [True, False, False, False]


def finite_difference(f: Callable[[Tensor], float], x: Tensor) -> list[float]:
    step = 1e-6
    out = []
    for i in range(len(x)):
        up, down = x.clone(), x.clone()
        up[i] += step
        down[i] -= step
        out.append((f(up) - f(down)) / (2 * step))
    return out


SEGMENTS = torch.arange(6).repeat_interleave(5)


def random_tokens(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Policy, anchor, advantages, weights, [30]."""
    generator = torch.Generator().manual_seed(seed)
    policy, anchor, advantages = (torch.randn(30, generator=generator, dtype=torch.float64) for _ in range(3))
    return policy * 0.4 - 2, anchor * 0.4 - 2, advantages, torch.rand(30, generator=generator, dtype=torch.float64)


def test_gradient_of_clip_equals_finite_differences() -> None:
    policy, anchor, advantages, weights = random_tokens(0)
    _, gradient, clipped = run(CLIP, policy, anchor, advantages, weights=weights)
    assert 0 < clipped < 30
    expected = finite_difference(lambda x: run(CLIP, x, anchor, advantages, weights=weights)[0], policy)
    assert gradient == pytest.approx(expected, abs=1e-7)


def test_gradient_of_cispo_equals_finite_differences_with_the_ratio_held() -> None:
    policy, anchor, advantages, weights = random_tokens(1)
    algorithm = Algorithm(loss="cispo", cispo_cap=1.2)
    loss, gradient, clipped = run(algorithm, policy, anchor, advantages, weights=weights)
    assert 0 < clipped < 30
    held = weights * (policy - anchor).exp().clamp(max=1.2) * advantages

    def f(x: Tensor) -> float:
        return -float((held * x).sum())

    assert loss == pytest.approx(f(policy))
    assert gradient == pytest.approx(finite_difference(f, policy), abs=1e-7)


def test_gradient_of_gspo_with_one_advantage_a_sequence_equals_finite_differences() -> None:
    policy, anchor, advantages, weights = random_tokens(2)
    advantages, weights = advantages[::5][SEGMENTS], weights[::5][SEGMENTS]

    def f(x: Tensor) -> float:
        return run(WIDE_GSPO, x, anchor, advantages, weights=weights, segments=SEGMENTS)[0]

    _, gradient, clipped = run(WIDE_GSPO, policy, anchor, advantages, weights=weights, segments=SEGMENTS)
    assert 0 < clipped < 30
    assert gradient == pytest.approx(finite_difference(f, policy), abs=1e-7)


def test_gradient_of_gspo_with_token_advantages_equals_finite_differences_with_the_sequence_ratio_held() -> None:
    policy, anchor, advantages, weights = random_tokens(3)
    held = (policy - anchor).view(6, 5).mean(1)[SEGMENTS] - policy

    def f(x: Tensor) -> float:
        s = (held + x).exp()
        gain = torch.minimum(s * advantages, s.clamp(0.8, 1.28) * advantages)
        return -float((weights * gain).sum())

    loss, gradient, clipped = run(WIDE_GSPO, policy, anchor, advantages, weights=weights, segments=SEGMENTS)
    assert 0 < clipped < 30
    assert loss == pytest.approx(f(policy))
    assert gradient == pytest.approx(finite_difference(f, policy), abs=1e-7)


def test_gradient_of_reference_kl_equals_finite_differences() -> None:
    policy, reference, _, _ = random_tokens(4)
    mask = torch.arange(30) % 3 != 0
    x = policy.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(reference_kl(x, reference, mask), x)
    expected = finite_difference(lambda x: float(reference_kl(x, reference, mask)), policy)
    assert gradient.tolist() == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("algorithm", [CLIP, CISPO, GSPO], ids=LOSSES)
def test_no_tokens_are_no_loss(algorithm: Algorithm) -> None:
    assert run(algorithm, tensor(), tensor(), tensor()) == (0.0, [], 0)


def test_shapes_that_do_not_fit_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"\[tokens\]"):
        run(CLIP, tensor(0.0, 0.0), tensor(0.0), tensor(0.0))
    with pytest.raises(ValueError, match=r"\[tokens\]"):
        run(GSPO, tensor(0.0), tensor(0.0), tensor(0.0), segments=torch.zeros(2, dtype=torch.int64))
