"""How well a hint tells the good turns of a trajectory from its bad ones, and which of several does so best. Pure.

Beyond ORSD, which scores a bundle by its correlation with outcomes: a bundle that every member of a group satisfies
equally can still point at the right turns inside of each. The method is ours.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from learner.advantages import dr_grpo
from learner.gigpo import discounted_returns, step_advantages
from learner.members import Member
from stream_rl.rubrics.alignment import spearman

Floats = npt.NDArray[np.float64]


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Which hint was chosen.

    >>> signal = [np.array([0.0, 1.0])] * 2
    >>> gaps = [[np.array([0.3, 0.2])] * 2, [np.array([0.2, 0.3])] * 2]
    >>> choose(gaps, signal, min_rho=0.0)
    Choice(index=1, rho=1.0, held_out_rho=1.0)
    """

    index: int | None  # of the chosen hint; None: no hint reaches the least correlation
    rho: float | None  # its correlation in the members it was chosen by
    held_out_rho: float | None  # and in the others; None where undefined


def step_signals(members: Sequence[Member], *, gamma: float) -> list[Floats]:
    """The centred GiGPO step advantage of each turn of each valid member, [turns]; 0 where nothing can be compared."""
    returns = [discounted_returns(member.step_rewards, gamma) for member in members]
    anchors = [anchor for member in members for anchor in member.anchors]
    rows = step_advantages(np.concatenate([np.zeros(0), *returns]), anchors, dr_grpo)
    return np.split(rows, np.cumsum([len(r) for r in returns])[:-1]) if members else []


def within_rho(gaps: Sequence[Floats], signals: Sequence[Floats]) -> float | None:
    """Mean over members of Spearman's correlation between the mean D of a turn and its step advantage.

    Both are one array [turns] a member; NaN marks a turn without D. A member in which either is constant is left out;
    None when all are.
    """
    rhos = [spearman(gap.tolist(), signal.tolist()) for gap, signal in zip(gaps, signals, strict=True)]
    defined = [rho for rho in rhos if rho is not None]
    return statistics.fmean(defined) if defined else None


def choose(gaps: Sequence[Sequence[Floats]], signals: Sequence[Floats], *, min_rho: float) -> Choice:
    """The hint with the largest `within_rho` in every second member; `gaps` [hints][members][turns].

    The members between them take no part in the choice and measure what is chosen: the best of several is flattered by
    the members it was chosen by. Equal hints: the first. None below `min_rho`, or where undefined for all.
    """
    rhos = [within_rho(by_member[::2], signals[::2]) for by_member in gaps]
    defined = [(rho, -i) for i, rho in enumerate(rhos) if rho is not None and rho >= min_rho]
    if not defined:
        return Choice(index=None, rho=None, held_out_rho=None)
    rho, negative = max(defined)
    return Choice(index=-negative, rho=rho, held_out_rho=within_rho(gaps[-negative][1::2], signals[1::2]))
