"""Combinations of `[algorithm]` in which one option undoes another, or would be read by nothing the run does.

An option that merely rests, because the switch it belongs to is off, is no fault: switches are turned off to compare.
"""

from __future__ import annotations

from collections.abc import Iterator

from stream_rl.config.algorithm import Algorithm
from stream_rl.config.corrections import limits_of
from stream_rl.errors import ConfigError

_DEFAULTS = Algorithm()
_OFF = 'set distillation = "none" to do without a teacher'


def refuse_cancelling(a: Algorithm) -> None:
    """Raise `ConfigError` naming the option that would say nothing, and what to change."""
    try:
        limits_of(a)
    except ValueError as error:
        raise ConfigError("algorithm.correction_limits", f"{error}.") from None
    for name, problem in _cancelling(a):
        raise ConfigError(f"algorithm.{name}", f"{problem}.")


def _cancelling(a: Algorithm) -> Iterator[tuple[str, str]]:
    if a.penalty_before_stats and not a.invalid_action_penalty:
        yield "penalty_before_stats", "there is no penalty to subtract: invalid_action_penalty = 0"
    if a.advantage == "gigpo" and a.gigpo_weight == 0:
        yield "gigpo_weight", "0 leaves the episode advantage alone; that is advantage = 'grpo'"
    if a.loss == "gspo" and a.correction in ("tis_sequence", "mis_sequence", "geometric"):
        yield (
            "correction",
            f"gspo already bounds the ratio of whole sequences, {a.correction!r} would bound it once more; "
            "use a token-level correction, or loss = 'clip'",
        )
    yield from _without_effect(a)
    if a.distillation == "opsd":
        for name in ("advantage", "stats_over", "invalid_action_penalty"):
            if getattr(a, name) != getattr(_DEFAULTS, name):
                yield name, f"{getattr(a, name)!r} would not be read: 'opsd' trains on the teacher's term alone"
        if a.selection == "reward_variance":
            yield "selection", "'opsd' reads no reward, so a selection by reward spread only throws rollouts away"


def _without_effect(a: Algorithm) -> Iterator[tuple[str, str]]:
    weight = {"rised": "distill_coef", "opsd": "distill_coef", "sdar": "distill_coef",
              "orsd": "orsd_weight", "rlsd": "rlsd_mix"}.get(a.distillation)  # fmt: skip
    if weight and getattr(a, weight) == 0:
        yield weight, f"0 pays for the teacher's pass and leaves the gradient as it is; {_OFF}"
    if a.divergence == "jsd" and a.distillation not in ("none", "rised", "opsd"):
        yield "divergence", f"'jsd' is a loss of its own; {a.distillation!r} reads the gap of the sampled tokens"
    if a.rubrics == "written" and a.bundle_choice != "aligned":
        if a.bundle_score != "outcome":
            yield "bundle_score", f"no score is taken: bundle_choice = {a.bundle_choice!r}"
        if a.rubric_bank:
            yield "rubric_bank", f"the bank learns from scores, and bundle_choice = {a.bundle_choice!r} takes none"
    if a.rubrics == "written" and a.bundle_score == "within" and a.rubric_bank:
        yield "rubric_bank", "the bank learns from a verifier's scores, and bundle_score = 'within' asks for none"
