"""Off-policy correction: the sampler's policy mu is not the policy at the start of the update (prox). r = prox / mu.

Axes: T, tokens. All results are detached.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from learner.losses import bounded_exp, k3, keep, ratio
from learner.rejection import holds_unlikely, largest_moments, moved_too_far, outside
from learner.segments import segment_mean, segment_sum
from stream_rl.config import Algorithm
from stream_rl.config.corrections import DEFAULT_LIMITS, limits_of


class Mismatch(NamedTuple):
    """Sums over tokens, to be added over micro-batches and ranks; `learner.metrics` turns them into means."""

    tokens: float  # how many
    kl: float  # k3 estimate of KL(mu || prox), nats
    tv: float  # |prox / mu - 1| / 2: its mean estimates the total variation distance
    weight: float  # prox / mu
    weight_squared: float  # its square: (sum w)^2 / (n sum w^2) is the effective sample share


class Corrected(NamedTuple):
    """What a correction makes of the tokens of one micro-batch."""

    weights_T: Tensor  # [T] factor of each token's policy loss; 0 where dropped or masked
    num_rejected: Tensor  # [] tokens of the mask that were dropped
    num_capped: Tensor  # [] tokens of the mask whose ratio was above the cap


class _Rule(NamedTuple):
    """A token weighs exp(log_weight), at most `cap`; 0 where dropped."""

    log_weight_T: Tensor
    cap: float
    dropped_T: Tensor  # bool


def correct(
    prox_T: Tensor, behavior_T: Tensor, advantages_T: Tensor, mask_T: Tensor, segments_T: Tensor, algorithm: Algorithm
) -> Corrected:
    """Weights of `algorithm.correction`, 1 for every token where prox is mu. R: product of r over the sequence.

    decoupled     min(r, 5)         decoupled PPO, arXiv:2110.00641; AReaL, arXiv:2505.24298
    none          1
    tis_token     min(r, 2)         truncated importance sampling: verl, slime
    tis_sequence  min(R, 5)         the same with the ratio of the sequence: SkyRL
    icepop        r, dropped outside [0.5, 5]: NeMo-RL
    mis_sequence  R, sequences outside [0.5, 2] dropped: masked importance sampling as in verl and slime, which weigh
                  what stays by its ratio; SkyRL drops the same sequences and weighs the rest 1
    geometric     1, sequences whose geometric mean of r is outside [0.99, 1.01] dropped: verl, SkyRL
    m2po          min(r, 5), `largest_moments` above 0.04 dropped; per micro-batch and not per batch, and the cap: ours
    tv_mask       min(r, 5), tokens that `moved_too_far`, 0.2, dropped: prime-rl; the cap is ours
    veto          1, sequences holding an r below 1e-4 dropped: the veto of slime and verl on its own

    `algorithm.correction_limits` overrides these constants in their order; the cap 5 of m2po and tv_mask stays.
    Raises `ValueError` for limits or shapes that do not fit.
    """
    for array in (prox_T, behavior_T, advantages_T, segments_T):
        if array.shape != mask_T.shape or mask_T.ndim != 1 or mask_T.dtype != torch.bool:
            raise ValueError(f"expected [tokens] and a bool mask, got {tuple(array.shape)} and {tuple(mask_T.shape)}")
    prox, behavior, advantages = (keep(x.detach().double(), mask_T) for x in (prox_T, behavior_T, advantages_T))
    rule = _rule(prox, behavior, advantages, mask_T, segments_T, algorithm)
    used = mask_T & ~rule.dropped_T
    weights = keep(bounded_exp(rule.log_weight_T).clamp(max=rule.cap), used)
    return Corrected(
        weights_T=weights.to(prox_T.dtype),
        num_rejected=(mask_T & rule.dropped_T).sum(),
        num_capped=(used & (rule.log_weight_T > math.log(rule.cap))).sum(),
    )


def _rule(
    prox_T: Tensor, behavior_T: Tensor, advantages_T: Tensor, mask_T: Tensor, segments_T: Tensor, algorithm: Algorithm
) -> _Rule:
    log_r = prox_T - behavior_T
    one, nobody = torch.zeros_like(log_r), torch.zeros_like(mask_T)
    (decoupled_cap,) = DEFAULT_LIMITS["decoupled"]
    limits = limits_of(algorithm)
    match algorithm.correction:
        case "decoupled" | "tis_token":
            return _Rule(log_r, limits[0], nobody)
        case "none":
            return _Rule(one, math.inf, nobody)
        case "tis_sequence":
            return _Rule(segment_sum(log_r, segments_T), limits[0], nobody)
        case "icepop":
            return _Rule(log_r, math.inf, outside(log_r, *limits))
        case "mis_sequence":
            log_product = segment_sum(log_r, segments_T)
            return _Rule(log_product, math.inf, outside(log_product, *limits))
        case "geometric":
            return _Rule(one, math.inf, outside(segment_mean(log_r, mask_T, segments_T), *limits))
        case "m2po":
            return _Rule(log_r, decoupled_cap, largest_moments(log_r, advantages_T, mask_T, limits[0]))
        case "tv_mask":
            return _Rule(log_r, decoupled_cap, moved_too_far(prox_T, behavior_T, advantages_T, limits[0]))
        case "veto":
            return _Rule(one, math.inf, holds_unlikely(log_r, segments_T, limits[0]))


def mismatch(prox_logprobs_T: Tensor, behavior_logprobs_T: Tensor, mask_T: Tensor) -> Mismatch:
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
        ]
    )
    return Mismatch(*sums.tolist())


def effective_sample_share(tokens: float, weight: float, weight_squared: float) -> float:
    """(sum w)^2 / (n sum w^2), in (0, 1]; 1 when every weight is the same, or there is no token."""
    return weight * weight / (tokens * weight_squared) if tokens and weight_squared else 1.0
