"""`[algorithm]`: how groups become gradients.

Every option stands alone and composes with the others; `stream_rl.config.impossible` refuses the combinations that
would cancel each other. Formulas and sources: docs/algorithms.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from stream_rl.config.base import Count, Fraction, NonNegativeFloat, PositiveFloat, Section

Advantage = Literal["grpo", "dr_grpo", "rloo", "gigpo"]
PolicyLossName = Literal["clip", "cispo", "gspo"]
Correction = Literal[
    "decoupled",
    "none",
    "tis_token",
    "tis_sequence",
    "icepop",
    "mis_sequence",
    "geometric",
    "m2po",
    "tv_mask",
    "veto",
]
Selection = Literal["all", "random", "reward_variance", "mmr", "rised"]
Distillation = Literal["none", "rised", "orsd", "opsd", "sdar", "rlsd"]

# Of a self-teacher's rows: ones whose advantage the teacher changes need the policy gradient, the others add a loss.
CORRECTS_ADVANTAGE = frozenset({"orsd", "rlsd"})


class Algorithm(Section, frozen=True, kw_only=True):
    """`[algorithm]`: how groups become gradients. The three RISED switches are selection, distillation, steering."""

    # advantages
    advantage: Advantage = "grpo"  # trajectory advantage within a group
    stats_over: Literal["trajectories", "steps"] = "trajectories"  # "steps": long episodes weigh more (verl-agent)
    invalid_action_penalty: NonNegativeFloat = 0.0  # subtracted for the tokens of an action the world did not take
    penalty_before_stats: bool = False  # subtract it from the rewards, before mean and spread (verl-agent)
    gigpo_weight: NonNegativeFloat = 1.0  # omega: weight of the step advantage
    gigpo_gamma: Fraction = 0.95  # discount of step returns
    gigpo_norm: Literal["mean", "mean_std"] = "mean"  # step groups are centred, or standardised too

    # policy loss
    loss: PolicyLossName = "clip"  # policy loss
    clip_low: PositiveFloat = 0.2  # lower clip of the ratio is 1 - clip_low
    clip_high: PositiveFloat = 0.28  # upper clip of the ratio is 1 + clip_high
    dual_clip: PositiveFloat = 3.0  # floor on the loss of negative advantages, as a multiple
    cispo_cap: PositiveFloat = 6.0  # cispo: cap of the detached ratio
    gspo_low: PositiveFloat = 3e-4  # gspo: lower clip of the sequence ratio is 1 - gspo_low
    gspo_high: PositiveFloat = 4e-4  # gspo: upper clip
    kl_coef: NonNegativeFloat = 0.0  # weight of the k3 KL to the start policy; > 0 keeps a frozen copy of it
    entropy_coef: NonNegativeFloat = 0.0  # entropy bonus

    # off-policy correction
    correction: Correction = "decoupled"  # off-policy weight
    correction_limits: tuple[PositiveFloat, ...] = ()  # the method's constants, in its order; empty: the published ones

    # selection and steering
    selection: Selection = "all"  # which candidates are trained
    redundancy: NonNegativeFloat = 0.5  # rised, mmr: weight of similarity to what is already selected
    steering: bool = False  # dominant violations become "avoid" guidance of later training rollouts
    steering_share: Fraction = 1.0  # share of training groups whose prompts carry the "avoid" note
    steering_rate: Annotated[float, Meta(gt=0, le=1)] = 0.1  # moving-average rate of tag rates per environment
    steering_floor: Fraction = 0.1  # a violation rate below this never steers
    steering_top: Count = 3  # rubrics in an "avoid" note

    # self-distillation
    distillation: Distillation = "none"  # how the self-teacher's log-likelihood gap enters
    teacher: Literal["current", "ema", "frozen"] = "current"  # whose parameters read the rubrics
    teacher_decay: Fraction = 0.99  # ema: teacher <- decay * teacher + (1 - decay) * policy, after each update
    distill_coef: NonNegativeFloat = 0.01  # rised, opsd, sdar: weight of the self-teacher's term
    distill_clip: PositiveFloat = 5.0  # rised, opsd: bound of |logS - logT|
    divergence: Literal["sampled", "jsd"] = "sampled"  # rised, opsd: reverse KL of sampled tokens, or top-k JSD
    jsd_alpha: Annotated[float, Meta(gt=0, lt=1)] = 0.5  # jsd: weight of the teacher in the mixture
    jsd_top_k: Count = 100  # jsd: tokens kept of the student's distribution; the rest is one bucket
    sdar_beta: PositiveFloat = 5.0  # sdar: slope of the gate
    orsd_weight: NonNegativeFloat = 0.2  # orsd: weight of the token correction
    orsd_clip: PositiveFloat = 2.0  # orsd: bound of the normalised gap
    orsd_norm: Literal["none", "centre", "zscore"] = "zscore"  # orsd: over the loss tokens of a trajectory
    rlsd_mix: Fraction = 0.5  # rlsd: share of the teacher's factor at the start
    rlsd_updates: Count = 100  # rlsd: updates until that share is 0

    # privileged context
    rubrics: Literal["vocabulary", "written"] = "vocabulary"  # tags of a vocabulary, or bundles the policy writes
    hint_support: Count = 2  # vocabulary: rollouts of a group that must show a rubric before it enters the hint
    hint_top_k: Count = 4  # vocabulary: rubrics in a hint
    bundles: Count = 4  # written: candidate bundles of one group
    bundle_choice: Literal["aligned", "single", "random"] = "aligned"  # written: best correlation, first, or any
    bundle_score: Literal["outcome", "within"] = "outcome"  # aligned: correlate outcomes, or gap with step returns
    bundle_tokens: Count = 256  # written: limit of one bundle; the prompt may fill the rest of the context
    writing_prompt: str = "builtin"  # "builtin", "compact" (the embedded policy's words), or a template file
    min_rho: Annotated[float, Meta(ge=-1, le=1)] = 0.0  # aligned: a lower correlation gives the group no teacher
    rubric_bank: bool = False  # written: criteria that aligned before are offered as one more bundle
