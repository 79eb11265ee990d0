"""Advantages: how much better a rollout did than the rest of its group, for every turn of every member.

An estimator takes the outcomes [n] of one group and says which of them count; those that do not are in no statistic
and get 0. With fewer than two that count, or no spread among them, everybody gets 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from learner.gigpo import discounted_returns, step_advantages
from learner.members import Member
from stream_rl.config import Algorithm

Advantages = npt.NDArray[np.float64]
Outcomes = Sequence[float] | Advantages


def grpo(rewards: Outcomes, valid: Sequence[bool] | None = None) -> Advantages:
    """(r - mean) / (std + 1e-6) with the unbiased standard deviation. DeepSeekMath, arXiv:2402.03300, eq. 4.

    >>> grpo([1.0, 0.0]).round(4).tolist()
    [0.7071, -0.7071]
    """
    return _among_valid(rewards, valid, lambda r: (r - r.mean()) / (r.std(ddof=1) + 1e-6))


def dr_grpo(rewards: Outcomes, valid: Sequence[bool] | None = None) -> Advantages:
    """r - mean. Its loss is divided by a constant, not by the number of loss tokens. Dr. GRPO, arXiv:2503.20783."""
    return _among_valid(rewards, valid, lambda r: r - r.mean())


def rloo(rewards: Outcomes, valid: Sequence[bool] | None = None) -> Advantages:
    """r - mean of the others. RLOO, arXiv:2402.14740, eq. 9."""
    return _among_valid(rewards, valid, lambda r: r - (r.sum() - r) / (len(r) - 1))


class Estimator(Protocol):
    """How the outcomes of one group become advantages."""

    def __call__(self, rewards: Outcomes, valid: Sequence[bool] | None = None) -> Advantages:
        """Outcomes [n], and which of them count (None: all), to advantages [n]."""
        ...


ESTIMATORS: Mapping[str, Estimator] = {"grpo": grpo, "dr_grpo": dr_grpo, "rloo": rloo}


def turn_advantages(members: Sequence[Member], algorithm: Algorithm) -> list[Advantages]:
    """One array [turns] a member: the advantage of each of its turns. Invalid members get zeros.

    `gigpo` adds `gigpo_weight` * step advantage to the episode's (arXiv:2505.10978, eq. 8). As in the authors' code,
    its normalisation holds for both parts: "mean" centres them (`dr_grpo`), "mean_std" standardises them (`grpo`).

    `stats_over = "steps"`: every turn is a row with its trajectory's reward and the statistics run over rows, so long
    episodes weigh more, as in verl-agent. It concerns the episode part; step advantages are over turns anyway.

    `invalid_action_penalty` p by default is subtracted from the advantages of invalid turns, whatever the group looks
    like. With `penalty_before_stats` it reduces what the statistics are taken of, so it moves the other turns too:
    - over steps, the reward of an invalid turn's row by p (verl-agent);
    - over trajectories, the reward by p for each invalid turn, as if that were its step reward;
    - in step groups, the return of the invalid turn by p, without reaching earlier turns (verl-agent).

    Fewer than two valid members compare nothing, not even one member's turns with each other.
    Raises `ValueError` naming a valid member whose reward, or for `gigpo` a step reward, is not finite.
    """
    out = [np.zeros(member.num_turns, dtype=np.float64) for member in members]
    kept = [number for number, member in enumerate(members) if member.valid]
    valid = [members[number] for number in kept]
    for number, member in zip(kept, valid, strict=True):
        _refuse_non_finite(member, number, with_steps=algorithm.advantage == "gigpo")
    penalty = algorithm.invalid_action_penalty
    before, after = (penalty, 0.0) if algorithm.penalty_before_stats else (0.0, penalty)
    if len(valid) > 1:
        rows = _episode_part(valid, before, algorithm)
        if algorithm.advantage == "gigpo":
            rows = rows + algorithm.gigpo_weight * _step_part(valid, before, algorithm)
        ends = np.cumsum([member.num_turns for member in valid])
        for number, compared in zip(kept, np.split(rows, ends[:-1]), strict=True):
            out[number] = compared
    for number, member in zip(kept, valid, strict=True):
        out[number] = out[number] - after * ~member.step_valid
    return out


def _episode_part(valid: Sequence[Member], penalty: float, algorithm: Algorithm) -> Advantages:
    estimate = _estimator(algorithm)
    if algorithm.stats_over == "steps":
        return estimate(np.concatenate([member.reward - penalty * ~member.step_valid for member in valid]))
    # Counted, not summed turn by turn: equal counts must give equal rewards to the last bit.
    rewards = np.array([member.reward - penalty * np.count_nonzero(~member.step_valid) for member in valid])
    return np.repeat(estimate(rewards), [member.num_turns for member in valid])


def _step_part(valid: Sequence[Member], penalty: float, algorithm: Algorithm) -> Advantages:
    returns = np.concatenate(
        [discounted_returns(m.step_rewards, algorithm.gigpo_gamma) - penalty * ~m.step_valid for m in valid]
    )
    return step_advantages(returns, [anchor for member in valid for anchor in member.anchors], _estimator(algorithm))


def _estimator(algorithm: Algorithm) -> Estimator:
    if algorithm.advantage == "gigpo":
        return dr_grpo if algorithm.gigpo_norm == "mean" else grpo
    return ESTIMATORS[algorithm.advantage]


def _refuse_non_finite(member: Member, number: int, *, with_steps: bool) -> None:
    who = f"member {number}" + (f" ({member.name})" if member.name else "")
    if not math.isfinite(member.reward):
        raise ValueError(f"{who} is valid, but its reward is not finite: {member.reward}")
    if with_steps and not np.isfinite(member.step_rewards).all():
        raise ValueError(f"{who} is valid, but a step reward is not finite: {member.step_rewards.tolist()}")


def _among_valid(
    rewards: Outcomes, valid: Sequence[bool] | None, estimate: Callable[[Advantages], Advantages]
) -> Advantages:
    if valid is not None and len(rewards) != len(valid):
        raise ValueError(f"{len(rewards)} rewards for {len(valid)} members")
    keep = np.ones(len(rewards), dtype=np.bool_) if valid is None else np.asarray(valid, dtype=np.bool_)
    members = np.asarray(rewards, dtype=np.float64)[keep]
    if not np.isfinite(members).all():
        raise ValueError(f"the reward of a valid member is not finite: {list(rewards)}")
    out = np.zeros(len(keep), dtype=np.float64)
    # Compared for equality, not by std > 0: rounding gives equal rewards a tiny std, which 1e-6 would blow up.
    if len(members) > 1 and members.min() != members.max():
        out[keep] = estimate(members)
    return out
