from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from learner.divergence import jensen_shannon, with_tail

ONE = torch.tensor([True])


def logs(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64).log()


def test_two_kept_tokens_and_a_tail_by_hand() -> None:
    # student 1/2, 1/4, tail 1/4; teacher 1/4, 1/4, tail 1/2; mixture 3/8, 1/4, 3/8
    # KL(teacher || m) = 1/4 log(2/3) + 0 + 1/2 log(4/3); KL(student || m) = 1/2 log(4/3) + 0 + 1/4 log(2/3)
    found = jensen_shannon(logs([0.5, 0.25]), logs([0.25, 0.25]), ONE, alpha=0.5)
    assert float(found) == pytest.approx(0.25 * math.log(2 / 3) + 0.5 * math.log(4 / 3))


def test_alpha_is_the_weight_of_the_teacher() -> None:
    # mixture 3/4 teacher + 1/4 student: 5/16, 1/4, 7/16
    student, teacher, mixture = [1 / 2, 1 / 4, 1 / 4], [1 / 4, 1 / 4, 1 / 2], [5 / 16, 1 / 4, 7 / 16]
    from_teacher = sum(t * math.log(t / m) for t, m in zip(teacher, mixture, strict=True))
    from_student = sum(s * math.log(s / m) for s, m in zip(student, mixture, strict=True))
    found = jensen_shannon(logs(student[:2]), logs(teacher[:2]), ONE, alpha=0.75)
    assert float(found) == pytest.approx(0.75 * from_teacher + 0.25 * from_student)


def test_the_tail_holds_the_rest() -> None:
    assert with_tail(logs([0.5, 0.3])).exp()[0].tolist() == pytest.approx([0.5, 0.3, 0.2])


def test_with_the_whole_vocabulary_kept_the_tail_weighs_nothing() -> None:
    student, teacher = [0.7, 0.2, 0.1], [0.1, 0.2, 0.7]
    m = [(a + b) / 2 for a, b in zip(student, teacher, strict=True)]
    exact = sum(
        0.5 * a * math.log(a / c) + 0.5 * b * math.log(b / c) for a, b, c in zip(student, teacher, m, strict=True)
    )
    assert float(jensen_shannon(logs(student), logs(teacher), ONE, alpha=0.5)) == pytest.approx(exact, abs=1e-7)


@pytest.mark.parametrize("alpha", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("kept", [2, 5])
def test_gradient_agrees_with_finite_differences(alpha: float, kept: int) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 5, dtype=torch.float64, generator=generator, requires_grad=True)
    teacher = torch.log_softmax(torch.randn(3, 5, dtype=torch.float64, generator=generator), -1)
    ids = logits.detach().topk(kept, -1).indices
    mask = torch.tensor([True, False, True])

    def loss(at: Tensor) -> Tensor:
        student = torch.log_softmax(at, -1).gather(-1, ids)
        return jensen_shannon(student, teacher.gather(-1, ids), mask, alpha=alpha)

    assert torch.autograd.gradcheck(loss, (logits,))
    (gradient,) = torch.autograd.grad(loss(logits), logits)
    assert gradient[1].tolist() == [0.0] * 5
    assert gradient[0].abs().max() > 1e-3


def test_the_teacher_gets_no_gradient_and_an_equal_one_gives_none() -> None:
    student = logs([0.5, 0.25]).requires_grad_()
    teacher = logs([0.2, 0.25]).requires_grad_()
    jensen_shannon(student, teacher, ONE, alpha=0.5).backward()  # type: ignore[no-untyped-call]
    assert teacher.grad is None
    assert student.grad is not None
    assert student.grad.abs().max() > 0
    same = logs([0.5, 0.25]).requires_grad_()
    loss = jensen_shannon(same, same.detach(), ONE, alpha=0.3)
    loss.backward()  # type: ignore[no-untyped-call]
    assert same.grad is not None
    assert float(loss.detach()) == pytest.approx(0, abs=1e-12)
    assert same.grad.abs().max() < 1e-12


def test_a_token_the_teacher_rules_out_stays_finite() -> None:
    student = torch.tensor([[0.0, -math.inf]], requires_grad=True)
    loss = jensen_shannon(student, torch.tensor([[-math.inf, 0.0]]), ONE, alpha=0.5)
    loss.backward()  # type: ignore[no-untyped-call]
    assert float(loss.detach()) == pytest.approx(math.log(2), abs=1e-5)
    assert student.grad is not None
    assert student.grad.isfinite().all()


@given(st.integers(0, 10**6), st.floats(0.05, 0.95), st.integers(1, 4), st.integers(1, 6))
@settings(deadline=None, max_examples=40)
def test_bounds_and_masked_places(seed: int, alpha: float, tokens: int, kept: int) -> None:
    rng = np.random.default_rng(seed)
    student, teacher = (
        torch.log_softmax(torch.from_numpy(3 * rng.normal(size=(tokens, 6))), -1)[:, :kept] for _ in range(2)
    )
    mask = torch.from_numpy(rng.random(tokens) < 0.5)
    value = jensen_shannon(student, teacher, mask, alpha=alpha)
    entropy = -(alpha * math.log(alpha) + (1 - alpha) * math.log(1 - alpha))  # of the coin that picks a side
    assert -1e-9 <= float(value) <= int(mask.sum()) * entropy + 1e-6
    broken = torch.where(mask[:, None], student, torch.nan).requires_grad_()
    again = jensen_shannon(broken, torch.where(mask[:, None], teacher, torch.nan), mask, alpha=alpha)
    assert float(again.detach()) == float(value)
    again.backward()  # type: ignore[no-untyped-call]
    assert broken.grad is not None
    assert broken.grad.isfinite().all()


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_a_mixture_needs_both(alpha: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        jensen_shannon(logs([0.5]), logs([0.5]), ONE, alpha=alpha)


def test_shapes_are_checked() -> None:
    with pytest.raises(ValueError, match="expected two"):
        jensen_shannon(logs([0.5]), logs([0.5, 0.2]), ONE, alpha=0.5)
