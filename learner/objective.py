"""What is minimised, and what that asks of the passes of an update. Pure."""

from __future__ import annotations

import msgspec

from learner.batch import MiniBatch
from learner.distill import rlsd_mix
from learner.rows import Row
from stream_rl.config import Algorithm


class Objective(msgspec.Struct, frozen=True, kw_only=True):
    """What is minimised."""

    algorithm: Algorithm  # coefficients and bounds
    episode_tokens: int  # most tokens one trajectory can sample: the constant divisor of `dr_grpo`
    token_budget: int  # padded tokens of one micro-batch
    mini_batches: int  # optimiser steps

    def divisor(self, mini: MiniBatch) -> int:
        """What the summed token losses of a mini-batch, over all ranks, are divided by."""
        if self.algorithm.advantage == "dr_grpo":
            return mini.num_trajectories * self.episode_tokens
        return mini.num_loss_tokens

    def has_signal(self, row: Row) -> bool:
        """Whether this row can move a parameter: by its advantages, by its teacher, or by a term every row has."""
        a = self.algorithm
        if a.kl_coef > 0 or a.entropy_coef > 0:
            return True
        match a.distillation:
            case "opsd":
                return self._teacher_adds(row)
            case "rised" | "sdar" | "orsd":
                return bool(row.advantages.any()) or self._teacher_adds(row)
            case "none" | "rlsd":  # a factor on an advantage of 0 is 0
                return bool(row.advantages.any())

    @property
    def kept_tokens(self) -> int:
        """Tokens of the student's distribution that are compared with the teacher's; 0: the sampled ones alone."""
        a = self.algorithm
        return a.jsd_top_k if a.divergence == "jsd" and a.distillation in ("rised", "opsd") else 0

    @property
    def norms_gap(self) -> bool:
        """Whether D is normalised over whole trajectories."""
        return self.algorithm.distillation == "orsd" and self.algorithm.orsd_norm != "none"

    def needs_prox(self, mini: MiniBatch, *, is_first: bool) -> bool:
        """Whether a mini-batch needs a pass of its own under the parameters at the start of the update.

        The first mini-batch is trained at those very parameters, in the same micro-batches: its train pass gives the
        values, unless they are asked for before it.
        """
        if mini.has_teacher and (self.kept_tokens or self.norms_gap):
            return True
        return not is_first and (mini.has_teacher or self.algorithm.correction != "none")

    def teaches(self, update: int) -> bool:
        """Whether a teacher pass in `update` can change anything: that of `rlsd` fades out."""
        a = self.algorithm
        if a.distillation == "rlsd":
            return rlsd_mix(a.rlsd_mix, update=update, updates=a.rlsd_updates) > 0
        return a.distillation != "none"

    def _teacher_adds(self, row: Row) -> bool:
        a = self.algorithm
        weight = a.orsd_weight if a.distillation == "orsd" else a.distill_coef
        return row.teacher_ids is not None and weight > 0
