from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from learner.logprobs import EntropyMode, chunks_for, token_scores

HIDDEN = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
TARGETS = torch.tensor([0, 3, 1, 2, 5, 4, 0])


@pytest.fixture
def head() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(5, 6, bias=False)


def test_by_hand_at_another_temperature() -> None:
    # logits 0 and log 3; at T = 1 p = 1/4, 3/4; at T = 1/2 logits double: 1/10, 9/10
    hidden = torch.tensor([[0.0, math.log(3)]])
    out = token_scores(hidden, torch.tensor([1]), lambda h: h, temperature=0.5, entropy="value")
    assert float(out.logprobs) == pytest.approx(math.log(0.9))
    assert float(out.entropy) == pytest.approx(-(0.9 * math.log(0.9) + 0.1 * math.log(0.1)))


@pytest.mark.parametrize("num_chunks", [2, 3, 7, 11])
@pytest.mark.parametrize("entropy", ["value", "gradient"])
def test_chunks_change_neither_value_nor_gradient(head: nn.Linear, num_chunks: int, entropy: EntropyMode) -> None:
    def run(chunks: int) -> list[Tensor]:
        head.zero_grad()
        hidden = HIDDEN.clone().requires_grad_()
        out = token_scores(hidden, TARGETS, head, temperature=0.7, entropy=entropy, num_chunks=chunks)
        total = out.logprobs.sum() + out.entropy.sum()
        total.backward()  # type: ignore[no-untyped-call]
        assert hidden.grad is not None
        assert head.weight.grad is not None
        return [out.logprobs.detach(), out.entropy.detach(), hidden.grad, head.weight.grad.clone()]

    for whole, chunked in zip(run(1), run(num_chunks), strict=True):
        assert torch.allclose(whole, chunked, atol=1e-6)


@pytest.mark.parametrize("num_chunks", [1, 3, 11])
@pytest.mark.parametrize("with_gradients", [False, True])
def test_the_most_probable_tokens_are_kept(head: nn.Linear, num_chunks: int, with_gradients: bool) -> None:
    with torch.set_grad_enabled(with_gradients):
        out = token_scores(HIDDEN, TARGETS, head, temperature=0.7, entropy="none", support=3, num_chunks=num_chunks)
    log_p = torch.log_softmax(head(HIDDEN) / 0.7, -1)
    wanted = log_p.sort(-1, descending=True)
    assert out.support_ids.tolist() == wanted.indices[:, :3].tolist()
    assert torch.allclose(out.support_logprobs, wanted.values[:, :3], atol=1e-6)
    whole = token_scores(HIDDEN, TARGETS, head, temperature=0.7, entropy="none", support=100, num_chunks=num_chunks)
    assert whole.support_ids.shape == (7, 6)  # no more than the vocabulary
    nothing = token_scores(HIDDEN, TARGETS, head, temperature=0.7, entropy="none", num_chunks=num_chunks)
    assert nothing.support_ids.shape == nothing.support_logprobs.shape == (7, 0)


@pytest.mark.parametrize("num_chunks", [1, 3, 11])
def test_chosen_tokens_are_scored_with_their_gradient(head: nn.Linear, num_chunks: int) -> None:
    ids = torch.tensor([[0, 5], [1, 1], [2, 0], [3, 4], [4, 5], [5, 0], [0, 3]])
    out = token_scores(HIDDEN, TARGETS, head, temperature=0.7, entropy="none", support=ids, num_chunks=num_chunks)
    log_p = torch.log_softmax(head(HIDDEN) / 0.7, -1)
    assert torch.equal(out.support_ids, ids)
    assert torch.allclose(out.support_logprobs, log_p.gather(-1, ids), atol=1e-6)
    (found,) = torch.autograd.grad(out.support_logprobs.exp().sum(), head.weight)
    (wanted,) = torch.autograd.grad(log_p.gather(-1, ids).exp().sum(), head.weight)
    assert torch.allclose(found, wanted, atol=1e-6)


def test_a_support_of_other_tokens_is_refused(head: nn.Linear) -> None:
    with pytest.raises(ValueError, match="expected a support"):
        token_scores(HIDDEN, TARGETS, head, temperature=1.0, entropy="none", support=torch.zeros(3, 2).long())


def test_entropy_can_be_a_constant_or_absent(head: nn.Linear) -> None:
    value = token_scores(HIDDEN, TARGETS, head, temperature=1.0, entropy="value")
    assert value.logprobs.requires_grad
    assert not value.entropy.requires_grad
    none = token_scores(HIDDEN, TARGETS, head, temperature=1.0, entropy="none")
    assert none.entropy.tolist() == [0.0] * 7
    assert torch.equal(none.logprobs, value.logprobs)


def test_scores_are_float32_for_a_half_precision_head(head: nn.Linear) -> None:
    half = head.to(torch.bfloat16)
    out = token_scores(HIDDEN.bfloat16(), TARGETS, half, temperature=1.0, entropy="value")
    assert out.logprobs.dtype == out.entropy.dtype == torch.float32


def test_number_of_chunks() -> None:
    assert chunks_for(0, 100, 1000) == 1
    assert chunks_for(10, 100, 1000) == 1
    assert chunks_for(11, 100, 1000) == 2
    assert chunks_for(3, 5000, 1000) == 3  # a single token's logits are above the limit
