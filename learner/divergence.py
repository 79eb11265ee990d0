"""How far two next-token distributions are apart, where of each only some tokens and the mass of the rest are known.

Axes: T, tokens; K, kept tokens of the vocabulary, the same ones for both distributions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from learner.losses import keep

_LARGEST_LOG_MASS = -1e-7  # float32 cannot tell a larger mass of the kept tokens from 1; the tail then holds 1e-7
_SMALLEST_LOGPROB = -80.0  # exp(-80) is 2e-35: nothing, and 0 * -inf cannot arise


def jensen_shannon(student_logprobs_TK: Tensor, teacher_logprobs_TK: Tensor, mask_T: Tensor, *, alpha: float) -> Tensor:
    """Sum over the mask of alpha * KL(teacher || m) + (1 - alpha) * KL(student || m), m the mixture of the two.

    m = alpha * teacher + (1 - alpha) * student; the K kept tokens and one bucket for the rest count. Only the student
    gets a gradient, through m too. Generalised JSD: arXiv:2306.13649, eq. 3; top-k with a tail bucket: SDPO,
    arXiv:2601.20802; as a self-teacher's loss: OPSD, arXiv:2601.18734.
    """
    if student_logprobs_TK.shape != teacher_logprobs_TK.shape or student_logprobs_TK.shape[:1] != mask_T.shape:
        raise ValueError(
            f"expected two [tokens, kept] and [tokens], got {tuple(student_logprobs_TK.shape)}, "
            f"{tuple(teacher_logprobs_TK.shape)} and {tuple(mask_T.shape)}"
        )
    if not 0 < alpha < 1:
        raise ValueError(f"the teacher's weight in the mixture must be between 0 and 1, got {alpha}")
    student = with_tail(keep(student_logprobs_TK, mask_T[:, None]))
    teacher = with_tail(keep(teacher_logprobs_TK.detach(), mask_T[:, None]))
    weight = student.new_tensor(alpha)
    mixture = torch.logaddexp(teacher + weight.log(), student + (1 - weight).log())
    from_teacher = (teacher.exp() * (teacher - mixture)).sum(-1)
    from_student = (student.exp() * (student - mixture)).sum(-1)
    return keep(alpha * from_teacher + (1 - alpha) * from_student, mask_T).sum()


def with_tail(logprobs_TK: Tensor) -> Tensor:
    """The K log-probabilities and that of everything else, [T, K + 1]."""
    kept = logprobs_TK.clamp(min=_SMALLEST_LOGPROB)
    mass = torch.logsumexp(kept, dim=-1, keepdim=True).clamp(max=_LARGEST_LOG_MASS)
    return torch.cat([kept, torch.log(-torch.expm1(mass))], dim=-1)
