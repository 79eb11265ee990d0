from __future__ import annotations

import math

import pytest
import torch

from learner.distill import gap, rised_loss

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
