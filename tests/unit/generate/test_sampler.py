from __future__ import annotations

import math

import torch

from stream_rl.generate.sampler import sample


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_greedy_takes_the_largest_and_reports_temperature_1() -> None:
    logits = torch.tensor([[0.0, math.log(3.0), -1e9], [math.log(4.0), 0.0, -1e9]])
    token_ids, logprobs = sample(logits, torch.zeros(2), [seeded(0)] * 2)
    assert token_ids.tolist() == [1, 0]
    torch.testing.assert_close(logprobs, torch.tensor([math.log(3 / 4), math.log(4 / 5)]))


def test_draws_follow_the_tempered_distribution() -> None:
    """Logits (0, ln 3) at temperature 0.5 are odds of 1 to 9: probabilities 0.1 and 0.9."""
    rows = 20000
    logits = torch.tensor([0.0, math.log(3.0)]).repeat(rows, 1)
    token_ids, logprobs = sample(logits, torch.full((rows,), 0.5), [seeded(1)] * rows)
    share = token_ids.float().mean().item()
    assert abs(share - 0.9) < 4 * math.sqrt(0.09 / rows)
    torch.testing.assert_close(logprobs[token_ids == 0][0], torch.tensor(math.log(0.1)))
    torch.testing.assert_close(logprobs[token_ids == 1][0], torch.tensor(math.log(0.9)))


def test_a_row_with_its_own_generator_does_not_depend_on_its_neighbours() -> None:
    logits = torch.randn(5, 50, generator=seeded(2))
    shared = seeded(3)
    together, _ = sample(logits, torch.ones(5), [shared, shared, seeded(9), shared, shared])
    alone, _ = sample(logits[2:3], torch.ones(1), [seeded(9)])
    assert together[2] == alone[0]
