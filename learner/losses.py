"""Token losses, summed over the tokens of a mask. The caller divides by the update's own normaliser.

Axes: T, tokens. Whatever stands in a masked place, NaN included, changes neither value nor gradient: inputs are
replaced before any arithmetic, because 0 * NaN is NaN. Of the log-probabilities, `policy` is what is trained and
`anchor` the policy at the start of the update; only the policy gets a gradient. rho = policy / anchor.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from learner.segments import segment_mean
from stream_rl.config import Algorithm

LOG_RATIO_LIMIT = 20.0  # exp(20) is 5e8: far outside every clip, and still finite in float32


class PolicyLoss(NamedTuple):
    """Result of a policy loss."""

    loss: Tensor  # [] sum over the mask, differentiable
    num_clipped: Tensor  # [] tokens whose gradient a bound cut off; for `cispo`, shortened


def policy_loss(
    policy_T: Tensor,
    anchor_T: Tensor,
    advantages_T: Tensor,
    weights_T: Tensor,
    mask_T: Tensor,
    segments_T: Tensor,
    algorithm: Algorithm,
) -> PolicyLoss:
    """The loss that `algorithm.loss` names. `weights`: what `learner.correction` makes of the sampler's mismatch."""
    match algorithm.loss:
        case "clip":
            return clipped_policy_loss(
                policy_T,
                anchor_T,
                advantages_T,
                weights_T,
                mask_T,
                clip_low=algorithm.clip_low,
                clip_high=algorithm.clip_high,
                dual_clip=algorithm.dual_clip,
            )
        case "cispo":
            return cispo_loss(policy_T, anchor_T, advantages_T, weights_T, mask_T, cap=algorithm.cispo_cap)
        case "gspo":
            return gspo_loss(
                policy_T,
                anchor_T,
                advantages_T,
                weights_T,
                mask_T,
                segments_T,
                clip_low=algorithm.gspo_low,
                clip_high=algorithm.gspo_high,
            )


def clipped_policy_loss(
    policy_T: Tensor,
    anchor_T: Tensor,
    advantages_T: Tensor,
    weights_T: Tensor,
    mask_T: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float,
) -> PolicyLoss:
    """Sum of -w * min(rho * A, clip(rho, 1 - clip_low, 1 + clip_high) * A); for A < 0 never above -dual_clip * w * A.

    PPO, arXiv:1707.06347, eq. 7; bounds apart: DAPO, arXiv:2503.14476; dual clip: arXiv:1912.09729, eq. 5.
    """
    mask = _check(mask_T, policy_T, anchor_T, advantages_T, weights_T)
    advantages, weights = keep(advantages_T.detach(), mask), keep(weights_T.detach(), mask)
    rho = ratio(keep(policy_T, mask), keep(anchor_T.detach(), mask))
    gain, cut = _clipped_gain(rho, advantages, clip_low, clip_high)
    floor = dual_clip * advantages
    cut = cut | ((advantages < 0) & (gain < floor))
    gain = torch.where(advantages < 0, torch.maximum(gain, floor), gain)
    return PolicyLoss(loss=-(weights * gain).sum(), num_clipped=(cut & mask).sum())


def cispo_loss(
    policy_T: Tensor, anchor_T: Tensor, advantages_T: Tensor, weights_T: Tensor, mask_T: Tensor, *, cap: float
) -> PolicyLoss:
    """Sum of -w * sg(min(rho, cap)) * A * log policy: the bound shortens a token's gradient and never removes it.

    MiniMax-M1, arXiv:2506.13585, eqs. 4 and 5, without a lower bound, as there.
    """
    mask = _check(mask_T, policy_T, anchor_T, advantages_T, weights_T)
    advantages, weights = keep(advantages_T.detach(), mask), keep(weights_T.detach(), mask)
    policy = keep(policy_T, mask)
    rho = ratio(policy.detach(), keep(anchor_T.detach(), mask))
    short = (rho > cap) & (advantages != 0) & mask
    return PolicyLoss(loss=-(weights * rho.clamp(max=cap) * advantages * policy).sum(), num_clipped=short.sum())


def gspo_loss(
    policy_T: Tensor,
    anchor_T: Tensor,
    advantages_T: Tensor,
    weights_T: Tensor,
    mask_T: Tensor,
    segments_T: Tensor,
    *,
    clip_low: float,
    clip_high: float,
) -> PolicyLoss:
    """Sum of -w * min(s * A, clip(s, 1 - clip_low, 1 + clip_high) * A), s = exp(mean of log rho over the sequence).

    GSPO-token, arXiv:2507.18071, eqs. 13 and 14: s_t = sg(s) * policy_t / sg(policy_t) has the value of s, and sends
    the gradient of each token through its own advantage; with one advantage a sequence it is the gradient of GSPO.
    """
    mask = _check(mask_T, policy_T, anchor_T, advantages_T, weights_T, segments_T)
    advantages, weights = keep(advantages_T.detach(), mask), keep(weights_T.detach(), mask)
    policy = keep(policy_T, mask)
    log_s = segment_mean(policy.detach() - keep(anchor_T.detach(), mask), mask, segments_T)
    # policy - sg(policy) is exactly 0, so the value stays that of s, to the last bit: the bounds are 1e-4 apart.
    s = bounded_exp(log_s + (policy - policy.detach()))
    gain, cut = _clipped_gain(s, advantages, clip_low, clip_high)
    return PolicyLoss(loss=-(weights * gain).sum(), num_clipped=(cut & mask).sum())


def reference_kl(policy_T: Tensor, reference_T: Tensor, mask_T: Tensor) -> Tensor:
    """Sum of k3 over the mask, nats: the estimate of KL(policy || reference). The reference gets no gradient.

    DeepSeekMath, arXiv:2402.03300, eq. 4: d = log reference - log policy.
    """
    mask = _check(mask_T, policy_T, reference_T)
    return k3(keep(policy_T, mask), keep(reference_T.detach(), mask)).sum()


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
    """exp of the difference, bounded."""
    return bounded_exp(log_numerator_T - log_denominator_T)


def bounded_exp(log_ratio_T: Tensor) -> Tensor:
    """exp within exp(-20) .. exp(20): an infinite ratio would make the gradient of the branch not taken 0 * inf."""
    return log_ratio_T.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()


def keep(values_T: Tensor, mask_T: Tensor) -> Tensor:
    """`values` where the mask is True, 0 elsewhere, in value and in gradient."""
    return torch.where(mask_T, values_T, torch.zeros((), dtype=values_T.dtype, device=values_T.device))


def _clipped_gain(rho_T: Tensor, advantages_T: Tensor, clip_low: float, clip_high: float) -> tuple[Tensor, Tensor]:
    """min(rho * A, clip(rho) * A), and where the clip was the smaller."""
    free = rho_T * advantages_T
    bounded = rho_T.clamp(1 - clip_low, 1 + clip_high) * advantages_T
    return torch.minimum(free, bounded), bounded < free


def _check(mask_T: Tensor, *arrays_T: Tensor) -> Tensor:
    for array in arrays_T:
        if array.shape != mask_T.shape or mask_T.ndim != 1 or mask_T.dtype != torch.bool:
            raise ValueError(f"expected [tokens] and a bool mask, got {tuple(array.shape)} and {tuple(mask_T.shape)}")
    return mask_T
