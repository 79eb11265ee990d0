"""The summed loss of one micro-batch: policy gradient, self-teacher's term, reference KL, entropy.

Axes: T, selected tokens of a micro-batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from learner.correction import correct, mismatch
from learner.distill import gap, orsd_correction, rised_loss, rlsd_advantages, rlsd_mix, sdar_loss
from learner.divergence import jensen_shannon
from learner.gap_statistics import GapStatistics
from learner.logprobs import TokenScores
from learner.losses import entropy_bonus, k3, keep, policy_loss, reference_kl
from learner.metrics import Sums
from learner.passes import Work
from stream_rl.config import Algorithm


class TokenLoss:
    """The loss of one update, and where its sums go.

    Formulas: `learner.losses`, `learner.correction`, `learner.distill`. With a correction, the ratio is taken to the
    policy at the start of the update and the sampler's mismatch becomes a weight; without one, to the sampler.
    """

    def __init__(self, algorithm: Algorithm, sums: Sums, *, update: int, statistics: GapStatistics | None) -> None:
        self._algorithm = algorithm
        self._sums = sums
        self._statistics = statistics  # of D over trajectories; None: nobody norms it
        self._rlsd_mix = rlsd_mix(algorithm.rlsd_mix, update=update, updates=algorithm.rlsd_updates)

    def __call__(self, work: Work, scores: TokenScores) -> Tensor:
        """Sum over the tokens of `work`, []; `scores` are those of the train pass, with a graph."""
        algorithm, mask = self._algorithm, work.tokens.mask
        loss = _through_every_output(scores) + self._self_teaching(work, scores) + self._policy_gradient(work, scores)
        if algorithm.entropy_coef:
            loss = loss - algorithm.entropy_coef * entropy_bonus(scores.entropy, mask)
        if work.reference_logprobs is not None:
            kl = reference_kl(scores.logprobs, work.reference_logprobs, mask)
            self._sums.add("kl_reference.total", float(kl.detach()))
            self._sums.add("kl_reference.tokens", float(mask.sum()))
            loss = loss + algorithm.kl_coef * kl
        self._sums.add("tokens", float(mask.sum()))
        self._sums.add("entropy", float(keep(scores.entropy.detach().double(), mask).sum()))
        self._measure_mismatch(work)
        return loss

    def _policy_gradient(self, work: Work, scores: TokenScores) -> Tensor:
        algorithm, tokens, mask = self._algorithm, work.tokens, work.tokens.mask
        if algorithm.distillation == "opsd":
            return scores.logprobs.new_zeros(())
        advantages = self._corrected_advantages(work)
        if algorithm.correction == "none":
            anchor, weights = tokens.behavior_logprobs, torch.ones_like(tokens.behavior_logprobs)
        else:
            anchor = work.known_prox.logprobs
            corrected = correct(anchor, tokens.behavior_logprobs, advantages, mask, tokens.segments, algorithm)
            weights = corrected.weights_T
            self._sums.add("rejected", float(corrected.num_rejected))
            self._sums.add("capped", float(corrected.num_capped))
        found = policy_loss(scores.logprobs, anchor, advantages, weights, mask, tokens.segments, algorithm)
        self._sums.add("clipped", float(found.num_clipped))
        return found.loss

    def _corrected_advantages(self, work: Work) -> Tensor:
        """Advantages with what the teacher says token by token, for the forms that correct them."""
        algorithm, tokens = self._algorithm, work.tokens
        if not bool(tokens.scored.any()):
            return tokens.advantages
        match algorithm.distillation:
            case "orsd":
                normed = work.gap
                if self._statistics is not None:
                    normed = self._statistics.normed(normed, tokens.trajectories, tokens.scored, algorithm.orsd_norm)
                added = orsd_correction(normed, tokens.scored, weight=algorithm.orsd_weight, clip=algorithm.orsd_clip)
                corrected = tokens.advantages + added
            case "rlsd":
                corrected = rlsd_advantages(tokens.advantages, work.gap, tokens.scored, mix=self._rlsd_mix)
            case _:
                return tokens.advantages
        change = keep((corrected - tokens.advantages).abs().double(), tokens.scored)
        self._sums.add("correction.total", float(change.sum()))
        self._sums.add("correction.tokens", float(tokens.scored.sum()))
        return corrected

    def _self_teaching(self, work: Work, scores: TokenScores) -> Tensor:
        """The self-teacher's own term, times its coefficient, for the forms that have one; and what D is like."""
        algorithm, scored = self._algorithm, work.tokens.scored
        nothing = scores.logprobs.new_zeros(())
        if not bool(scored.any()):
            return nothing
        prox, taught = work.known_prox, work.taught
        self._sums.add_gap(gap(prox.logprobs, taught.logprobs, scored))
        match algorithm.distillation:
            case "rised" | "opsd" if algorithm.divergence == "jsd":
                # Of whole distributions: no sampled token, so no ratio of one to correct by.
                loss = jensen_shannon(
                    scores.support_logprobs, taught.support_logprobs, scored, alpha=algorithm.jsd_alpha
                )
            case "rised" | "opsd":
                loss = rised_loss(scores.logprobs, prox.logprobs, taught.logprobs, scored, clip=algorithm.distill_clip)
            case "sdar":
                loss = sdar_loss(scores.logprobs, work.gap, scored, beta=algorithm.sdar_beta)
            case _:
                return nothing
        self._sums.add("distill.total", float(loss.detach()))
        self._sums.add("distill.tokens", float(scored.sum()))
        return algorithm.distill_coef * loss

    def _measure_mismatch(self, work: Work) -> None:
        if work.prox is None:
            return
        tokens, prox = work.tokens, work.prox.logprobs
        self._sums.add_mismatch(mismatch(prox, tokens.behavior_logprobs, tokens.mask))
        token_kl = keep(k3(tokens.behavior_logprobs.double(), prox.double()), tokens.mask)
        for lag in self._sums.lags:
            here = tokens.mask & (tokens.lags == lag)
            self._sums.add(f"lag.{lag}.tokens", float(here.sum()))
            self._sums.add(f"lag.{lag}.kl", float(token_kl[here].sum()))


def _through_every_output(scores: TokenScores) -> Tensor:
    """0, whose gradient of 0 takes the way through every output that has a graph.

    What a rank's loss reads depends on its rows. Under ZeRO 3 the backward pass gathers parameters once for each output
    it comes through, and ranks that do so a different number of times wait for each other for ever.
    """
    outputs = [output for output in scores if output.requires_grad]
    parts = [keep(output, torch.zeros_like(output, dtype=torch.bool)).sum() for output in outputs]
    return torch.stack(parts).sum() if parts else scores.logprobs.new_zeros(())
