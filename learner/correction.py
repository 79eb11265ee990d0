"""Off-policy correction: the sampler's policy mu is not the policy at the start of the update (prox).

Axes: T, tokens. All results are detached.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from learner.losses import k3, keep, ratio


class Mismatch(NamedTuple):
    """Sums over tokens, to be added over micro-batches and ranks; `learner.metrics` turns them into means."""

    tokens: float  # how many
    kl: float  # k3 estimate of KL(mu || prox), nats
    tv: float  # |prox / mu - 1| / 2: its mean estimates the total variation distance
    weight: float  # prox / mu
    weight_squared: float  # its square: (sum w)^2 / (n sum w^2) is the effective sample share
    capped: float  # tokens whose weight was above the cap


def decoupled_weights(prox_logprobs_T: Tensor, behavior_logprobs_T: Tensor, *, cap: float) -> Tensor:
    """min(prox / mu, cap), constant to the gradient. Decoupled PPO, arXiv:2110.00641; AReaL, arXiv:2505.24298."""
    return ratio(prox_logprobs_T.detach(), behavior_logprobs_T.detach()).clamp(max=cap)


def mismatch(prox_logprobs_T: Tensor, behavior_logprobs_T: Tensor, mask_T: Tensor, *, cap: float) -> Mismatch:
    """How far the sampler is from the policy at the start of the update, over the tokens of the mask."""
    prox = keep(prox_logprobs_T.detach().double(), mask_T)
    behavior = keep(behavior_logprobs_T.detach().double(), mask_T)
    weight = keep(ratio(prox, behavior), mask_T)
    sums = torch.stack(
        [
            mask_T.sum().double(),
            k3(behavior, prox).sum(),
            keep((weight - 1).abs() / 2, mask_T).sum(),
            weight.sum(),
            weight.square().sum(),
            (weight > cap).sum().double(),
        ]
    )
    return Mismatch(*sums.tolist())


def effective_sample_share(tokens: float, weight: float, weight_squared: float) -> float:
    """(sum w)^2 / (n sum w^2), in (0, 1]; 1 when every weight is the same, or there is no token."""
    return weight * weight / (tokens * weight_squared) if tokens and weight_squared else 1.0
