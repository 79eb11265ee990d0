"""Token losses, summed over the tokens of a mask. The caller divides by the update's own normaliser.

Axes: T, tokens. Whatever stands in a masked place, NaN included, changes neither value nor gradient: inputs are
replaced before any arithmetic, because 0 * NaN is NaN.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

LOG_RATIO_LIMIT = 20.0  # exp(20) is 5e8: far outside every clip, and still finite in float32


class PolicyLoss(NamedTuple):
    """Result of `clipped_policy_loss`."""

    loss: Tensor  # [] sum over the mask, differentiable
    num_clipped: Tensor  # [] tokens whose gradient a bound cut off


def clipped_policy_loss(
    policy_logprobs_T: Tensor,
    anchor_logprobs_T: Tensor,
    advantages_T: Tensor,
    weights_T: Tensor,
    mask_T: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float,
) -> PolicyLoss:
    """Sum of -w * min(rho * A, clip(rho, 1 - clip_low, 1 + clip_high) * A); for A < 0 never above -dual_clip * w * A.

    rho = policy / anchor, where the anchor is the policy at the start of the update. Only the policy gets a gradient.
    PPO, arXiv:1707.06347, eq. 7; bounds apart: DAPO, arXiv:2503.14476; dual clip: arXiv:1912.09729, eq. 5.
    """
    mask = _check(mask_T, policy_logprobs_T, anchor_logprobs_T, advantages_T, weights_T)
    advantages = keep(advantages_T.detach(), mask)
    weights = keep(weights_T.detach(), mask)
    rho = ratio(keep(policy_logprobs_T, mask), keep(anchor_logprobs_T.detach(), mask))
    free = rho * advantages
    bounded = rho.clamp(1 - clip_low, 1 + clip_high) * advantages
    gain = torch.minimum(free, bounded)
    floor = dual_clip * advantages
    gain = torch.where(advantages < 0, torch.maximum(gain, floor), gain)
    cut = (bounded < free) | ((advantages < 0) & (free < floor))
    return PolicyLoss(loss=-(weights * gain).sum(), num_clipped=(cut & mask).sum())


def entropy_bonus(entropy_T: Tensor, mask_T: Tensor) -> Tensor:
    """Sum of token entropies, nats: subtract it, times its coefficient, from the loss."""
    return keep(entropy_T, _check(mask_T, entropy_T)).sum()


def k3(log_p_T: Tensor, log_q_T: Tensor) -> Tensor:
    """exp(d) - d - 1 with d = log q - log p: for tokens drawn from p, an unbiased estimate of KL(p || q), never < 0.

    http://joschu.net/blog/kl-approx.html. [T], no mask.
    """
    d = (log_q_T - log_p_T).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    return torch.expm1(d) - d


def ratio(log_numerator_T: Tensor, log_denominator_T: Tensor) -> Tensor:
    """exp of the difference, bounded: an infinite ratio would make the gradient of the branch not taken 0 * inf."""
    return (log_numerator_T - log_denominator_T).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()


def keep(values_T: Tensor, mask_T: Tensor) -> Tensor:
    """`values` where the mask is True, 0 elsewhere, in value and in gradient."""
    return torch.where(mask_T, values_T, torch.zeros((), dtype=values_T.dtype, device=values_T.device))


def _check(mask_T: Tensor, *arrays_T: Tensor) -> Tensor:
    for array in arrays_T:
        if array.shape != mask_T.shape or mask_T.ndim != 1 or mask_T.dtype != torch.bool:
            raise ValueError(f"expected [tokens] and a bool mask, got {tuple(array.shape)} and {tuple(mask_T.shape)}")
    return mask_T
