"""Self-distillation: the teacher is the same policy, told which behaviour paid off.

Axes: T, tokens. logS and logT are the log-probabilities of the sampled tokens under the parameters at the start of the
update, without and with the hint in the prompt; D = logT - logS. The teacher is a constant: it enters as a coefficient
of log pi, since differentiating logS - logT would drop it from the gradient.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from learner.losses import keep, ratio

RATIO_CAP = 2.0


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


def gap(student_logprobs_T: Tensor, teacher_logprobs_T: Tensor, mask_T: Tensor) -> Gap:
    """Sums of D over the tokens of the mask, in float64."""
    d = keep(teacher_logprobs_T.detach().double() - student_logprobs_T.detach().double(), mask_T)
    return Gap(*torch.stack([mask_T.sum().double(), d.sum(), d.square().sum()]).tolist())
