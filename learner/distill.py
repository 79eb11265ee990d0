"""Self-distillation: the teacher is the policy itself, told which behaviour paid off.

Axes: T, tokens. logS and logT are the log-probabilities of the sampled tokens, without and with the hint in the
prompt; D = logT - logS. Student and teacher are constants: they enter as coefficients of log pi or of its advantage,
since differentiating logS - logT would drop the teacher from the gradient. Whatever stands in a masked place, NaN
included, changes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from learner.losses import LOG_RATIO_LIMIT, keep, ratio

RATIO_CAP = 2.0
RLSD_BOUNDS = (0.8, 1.2)  # of the teacher's factor


class Gap(NamedTuple):
    """Sums of D over tokens, to be added over micro-batches and ranks."""

    tokens: float  # how many a teacher scored
    total: float  # sum of D, nats
    squares: float  # sum of D^2


def rised_loss(
    policy_logprobs_T: Tensor,
    student_logprobs_T: Tensor,
    teacher_logprobs_T: Tensor,
    mask_T: Tensor,
    *,
    clip: float,
    ratio_cap: float = RATIO_CAP,
) -> Tensor:
    """Sum of sg(clip(logS - logT, -clip, clip) * min(pi / prox, ratio_cap)) * log pi: sampled-token reverse KL.

    Its gradient raises tokens the teacher likes more (logT > logS) and lowers those it likes less. It does not need
    an advantage, so groups that all passed or all failed still teach.
    """
    policy = keep(policy_logprobs_T, mask_T)
    student = keep(student_logprobs_T.detach(), mask_T)
    teacher = keep(teacher_logprobs_T.detach(), mask_T)
    coefficient = (student - teacher).clamp(-clip, clip) * ratio(policy.detach(), student).clamp(max=ratio_cap)
    return (coefficient * policy).sum()


def sdar_loss(policy_logprobs_T: Tensor, gap_T: Tensor, mask_T: Tensor, *, beta: float) -> Tensor:
    """Sum of sg(sigmoid(beta * D)) * (-log pi): every token is imitated, most those the teacher likes more. SDAR."""
    gate = torch.sigmoid(beta * keep(gap_T.detach(), mask_T))
    return -(gate * keep(policy_logprobs_T, mask_T)).sum()


def orsd_correction(normed_gap_T: Tensor, mask_T: Tensor, *, weight: float, clip: float) -> Tensor:
    """weight * clip(norm(D), -clip, clip), to be added to the advantage; 0 where there is no teacher. ORSD.

    The norm is over a whole trajectory: `learner.gap_statistics`.
    """
    return weight * keep(normed_gap_T.detach(), mask_T).clamp(-clip, clip)


def rlsd_advantages(advantages_T: Tensor, gap_T: Tensor, mask_T: Tensor, *, mix: float) -> Tensor:
    """A * ((1 - mix) + mix * clip(exp(sign(A) * D), 0.8, 1.2)); A where there is no teacher. RLSD, arXiv:2604.03128.

    The sign of an advantage never changes, and where it is 0 the teacher says nothing.
    """
    advantages = advantages_T.detach()
    direction = torch.sign(advantages) * keep(gap_T.detach(), mask_T)
    factor = direction.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp().clamp(*RLSD_BOUNDS)
    return torch.where(mask_T, advantages * ((1 - mix) + mix * factor), advantages)


def rlsd_mix(start: float, *, update: int, updates: int) -> float:
    """The teacher's share in update `update`, from 0: it falls linearly from `start` to 0 after `updates`."""
    return start * max(0.0, 1 - update / updates)


def gap(student_logprobs_T: Tensor, teacher_logprobs_T: Tensor, mask_T: Tensor) -> Gap:
    """Sums of D over the tokens of the mask, in float64."""
    d = keep(teacher_logprobs_T.detach().double() - student_logprobs_T.detach().double(), mask_T)
    return Gap(*torch.stack([mask_T.sum().double(), d.sum(), d.square().sum()]).tolist())
