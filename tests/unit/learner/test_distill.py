from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from learner.distill import gap, orsd_correction, rised_loss, rlsd_advantages, rlsd_mix, sdar_loss

ALL = torch.tensor([True, True, True])


def test_loss_by_hand() -> None:
    # logS - logT = 1, -9 -> -5, 0.5; rho = 1, 1, 4 -> 2
    student = torch.tensor([-1.0, -10.0, -2.0], dtype=torch.float64)
    teacher = torch.tensor([-2.0, -1.0, -2.5], dtype=torch.float64)
    policy = torch.tensor([-1.0, -10.0, -2.0 + math.log(4)], dtype=torch.float64, requires_grad=True)
    loss = rised_loss(policy, student, teacher, ALL, clip=5.0)
    loss.backward()  # type: ignore[no-untyped-call]
    assert policy.grad is not None
    assert policy.grad.tolist() == pytest.approx([1.0, -5.0, 1.0])
    assert float(loss.detach()) == pytest.approx(1 * -1.0 + -5 * -10.0 + 1 * (-2.0 + math.log(4)))


def test_teacher_shapes_the_gradient_and_receives_none() -> None:
    student = torch.tensor([-1.0, -1.0, -1.0])
    gradients = []
    for preference in (-0.5, -1.5):
        policy = student.clone().requires_grad_()
        teacher = torch.full((3,), preference, requires_grad=True)
        rised_loss(policy, student, teacher, ALL, clip=5.0).backward()  # type: ignore[no-untyped-call]
        assert teacher.grad is None
        assert policy.grad is not None
        gradients.append(policy.grad.tolist())
    # liked by the teacher: descent raises log pi; disliked: lowers it
    assert gradients == [[-0.5] * 3, [0.5] * 3]


def test_masked_places_do_not_matter() -> None:
    nan = float("nan")
    policy = torch.tensor([-1.0, nan], requires_grad=True)
    mask = torch.tensor([True, False])
    loss = rised_loss(policy, torch.tensor([-1.0, nan]), torch.tensor([-2.0, nan]), mask, clip=5.0)
    loss.backward()  # type: ignore[no-untyped-call]
    assert policy.grad is not None
    assert policy.grad.tolist() == [1.0, 0.0]
    assert gap(torch.tensor([-1.0, nan]), torch.tensor([-2.0, nan]), mask) == (1, -1, 1)


def test_extreme_gaps_stay_bounded() -> None:
    policy = torch.tensor([-1e4, 0.0, -3.0], requires_grad=True)
    student = torch.tensor([0.0, -1e4, -3.0])
    teacher = torch.tensor([-1e4, 0.0, -math.inf])
    rised_loss(policy, student, teacher, ALL, clip=5.0).backward()  # type: ignore[no-untyped-call]
    assert policy.grad is not None
    assert policy.grad.abs().max() <= 10.0


def test_gap_by_hand() -> None:
    # D = 1, -2, 0 over three tokens
    found = gap(torch.tensor([-2.0, -1.0, -1.0]), torch.tensor([-1.0, -3.0, -1.0]), ALL)
    assert found == (3, -1, 5)


def test_sdar_by_hand() -> None:
    # D = 0, log(3) / 5, -log(3) / 5; sigmoid(5 D) = 1/2, 3/4, 1/4
    third = math.log(3) / 5
    policy = torch.tensor([-1.0, -2.0, -4.0], dtype=torch.float64, requires_grad=True)
    gap_T = torch.tensor([0.0, third, -third], dtype=torch.float64, requires_grad=True)
    loss = sdar_loss(policy, gap_T, ALL, beta=5.0)
    loss.backward()  # type: ignore[no-untyped-call]
    assert float(loss.detach()) == pytest.approx(0.5 * 1 + 0.75 * 2 + 0.25 * 4)
    assert policy.grad is not None
    assert policy.grad.tolist() == pytest.approx([-0.5, -0.75, -0.25])
    assert gap_T.grad is None


def test_orsd_by_hand() -> None:
    normed = torch.tensor([0.5, -9.0, 2.5])
    assert orsd_correction(normed, ALL, weight=0.2, clip=2.0).tolist() == pytest.approx([0.1, -0.4, 0.4])
    some = torch.tensor([True, False, True])
    assert orsd_correction(normed, some, weight=0.2, clip=2.0).tolist() == pytest.approx([0.1, 0.0, 0.4])


def test_rlsd_by_hand() -> None:
    # A = 2: D = log 1.1 -> factor 1.1, D = 1 -> 1.2; A = -2: D = 1 -> exp(-1) -> 0.8; A = 0 stays 0
    advantages = torch.tensor([2.0, 2.0, -2.0, 0.0])
    gap_T = torch.tensor([math.log(1.1), 1.0, 1.0, 1.0])
    everywhere = torch.ones(4, dtype=torch.bool)
    found = rlsd_advantages(advantages, gap_T, everywhere, mix=0.5)
    assert found.tolist() == pytest.approx([2 * 1.05, 2 * 1.1, -2 * 0.9, 0.0])
    assert rlsd_advantages(advantages, gap_T, everywhere, mix=0.0).tolist() == advantages.tolist()
    nowhere = torch.zeros(4, dtype=torch.bool)
    assert rlsd_advantages(advantages, gap_T * math.nan, nowhere, mix=0.5).tolist() == advantages.tolist()


def test_rlsd_fades_out() -> None:
    assert [rlsd_mix(0.5, update=u, updates=100) for u in (0, 50, 100, 250)] == [0.5, 0.25, 0.0, 0.0]


def distributions(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits, teacher = (torch.randn(5, dtype=torch.float64, generator=generator) for _ in range(2))
    return logits, torch.log_softmax(teacher, -1)


def finite_differences(function: Callable[[Tensor], float], at: Tensor, step: float = 1e-6) -> list[float]:
    moves = step * torch.eye(len(at), dtype=at.dtype)
    return [(function(at + move) - function(at - move)) / (2 * step) for move in moves]


def test_rised_follows_the_gradient_of_the_reverse_divergence() -> None:
    # over all tokens y, weighed by pi(y), the sampled-token gradient is that of KL(pi || teacher)
    start, teacher = distributions(0)

    def divergence(at: Tensor) -> float:
        log_pi = torch.log_softmax(at, -1)
        return float((log_pi.exp() * (log_pi - teacher)).sum())

    logits = start.clone().requires_grad_()
    log_pi = torch.log_softmax(logits, -1)
    for y in range(5):
        loss = rised_loss(log_pi[y : y + 1], log_pi[y : y + 1], teacher[y : y + 1], ALL[:1], clip=100.0)
        (log_pi[y].exp().detach() * loss).backward(retain_graph=True)  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert logits.grad.tolist() == pytest.approx(finite_differences(divergence, start), abs=1e-7)


def test_sdar_follows_finite_differences_with_the_gate_held() -> None:
    start, teacher = distributions(1)
    targets = torch.tensor([0, 3, 3])
    held = (teacher - torch.log_softmax(start, -1))[targets]

    def loss(at: Tensor) -> Tensor:
        return sdar_loss(torch.log_softmax(at, -1)[targets], held, ALL, beta=5.0)

    logits = start.clone().requires_grad_()
    loss(logits).backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert logits.grad.tolist() == pytest.approx(finite_differences(lambda at: float(loss(at)), start), abs=1e-7)


@given(st.integers(0, 10**6), st.integers(1, 8))
@settings(deadline=None, max_examples=40)
def test_what_is_masked_changes_no_form(seed: int, tokens: int) -> None:
    rng = np.random.default_rng(seed)
    policy, student, teacher, advantages = (torch.from_numpy(rng.normal(size=tokens)) for _ in range(4))
    mask = torch.from_numpy(rng.random(tokens) < 0.5)
    gap_T = teacher - student
    broken_gap = torch.where(mask, gap_T, torch.nan)

    def with_gradient(form: Callable[[Tensor], Tensor], values: Tensor) -> list[float]:
        leaf = values.clone().requires_grad_()
        loss = form(leaf)
        loss.backward()  # type: ignore[no-untyped-call]
        assert leaf.grad is not None
        return [float(loss.detach()), *leaf.grad.tolist()]

    broken = [torch.where(mask, x, torch.nan) for x in (policy, student, teacher)]
    assert with_gradient(lambda p: rised_loss(p, student, teacher, mask, clip=5.0), policy) == with_gradient(
        lambda p: rised_loss(p, broken[1], broken[2], mask, clip=5.0), broken[0]
    )
    assert with_gradient(lambda p: sdar_loss(p, gap_T, mask, beta=5.0), policy) == with_gradient(
        lambda p: sdar_loss(p, broken_gap, mask, beta=5.0), broken[0]
    )
    assert torch.equal(
        orsd_correction(gap_T, mask, weight=0.2, clip=2.0), orsd_correction(broken_gap, mask, weight=0.2, clip=2.0)
    )
    corrected = rlsd_advantages(advantages, broken_gap, mask, mix=0.5)
    assert torch.equal(corrected, rlsd_advantages(advantages, gap_T, mask, mix=0.5))
    assert torch.equal(torch.sign(corrected), torch.sign(advantages))
    assert bool(((corrected / advantages - 1).abs() <= 0.1 + 1e-9).all())
