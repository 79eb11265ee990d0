"""Which of a group's rubric bundles goes with success: Spearman's correlation, and the choice among bundles. Pure.

ORSD keeps the bundle whose satisfaction correlates best with the outcomes of the group's members; `single` and
`random` are its baselines. What is ours, where the source is silent, is said at each function.
"""

from __future__ import annotations

import hashlib
import math
import statistics
from collections.abc import Sequence
from typing import Literal

import msgspec

Choice = Literal["aligned", "single", "random"]
Reason = Literal["aligned", "single", "random", "no_bundle", "undefined", "below_min_rho"]

_SATISFACTION_DECIMALS = 12


class Alignment(msgspec.Struct, frozen=True, kw_only=True):
    """Which bundle was chosen, and what was known of each.

    >>> choose_bundle([[0.0, 1.0], [1.0, 0.0]], [1.0, 0.0], choice="aligned", min_rho=0.0, seed=0, group_id="g")
    Alignment(index=1, rho=1.0, rhos=(-1.0, 1.0), reason='aligned')
    """

    index: int | None  # of the chosen bundle; None: the group gets no teacher
    rho: float | None  # its correlation with the outcomes, -1 to 1; None without a choice or where undefined
    rhos: tuple[float | None, ...]  # [bundles] correlation of each; None where undefined
    reason: Reason  # the rule that chose, or why none was chosen


def spearman(x: Sequence[float | None], y: Sequence[float | None]) -> float | None:
    """Spearman's rank correlation of paired values, -1 to 1; ties share the average of their ranks.

    Pairs with None or NaN on either side are left out. None where it is undefined: fewer than two pairs are left, or
    one side is constant over them. It is Pearson's correlation of the ranks, worked out in integers and rounded once,
    so that equal correlations are equal numbers and the order of pairs does not matter to the last digit.

    Raises `ValueError` for sequences of different length.
    """
    if len(x) != len(y):
        raise ValueError(f"a correlation pairs values: {len(x)} on one side, {len(y)} on the other")
    pairs = [(a, b) for a, b in zip(x, y, strict=True) if _present(a) and _present(b)]
    ranks_x = _doubled_ranks([a for a, _ in pairs if a is not None])
    ranks_y = _doubled_ranks([b for _, b in pairs if b is not None])
    variance = _scaled_covariance(ranks_x, ranks_x) * _scaled_covariance(ranks_y, ranks_y)
    if variance == 0:
        return None
    covariance = _scaled_covariance(ranks_x, ranks_y)
    # An integer quotient is rounded correctly at any size; the product of two float deviations would not be.
    return math.copysign(math.sqrt(covariance * covariance / variance), covariance)


def satisfaction(scores: Sequence[float | None]) -> float | None:
    """How far one trajectory satisfies one bundle: the mean of its criterion scores, 0 to 1.

    Missing scores (None, NaN) are left out; None when all are. The mean is kept to 12 decimals: scores are short
    decimals, and members whose scores average alike must tie whatever their binary rounding.
    """
    present = [score for score in scores if score is not None and not math.isnan(score)]
    return round(statistics.fmean(present), _SATISFACTION_DECIMALS) if present else None


def choose_bundle(
    satisfaction: Sequence[Sequence[float | None]],
    outcomes: Sequence[float | None],
    *,
    choice: Choice,
    min_rho: float,
    seed: int,
    group_id: str,
) -> Alignment:
    """The bundle the teacher is told for one group.

    `satisfaction` [bundles][members] and `outcomes` [members]; a missing value leaves that member out of that bundle's
    correlation. `aligned` takes the highest correlation, the first bundle among equals; none where no bundle's is
    defined, or the highest is below `min_rho`. `single` takes the first bundle, `random` any one, fixed by `seed` and
    `group_id`.

    Ours: the baselines read no score, so an undefined or low correlation does not keep them from choosing; their
    correlation is reported where scores are given. A bundle scored on fewer members competes as it is.

    Raises `ValueError` for a bundle whose members are not those of `outcomes`.
    """
    for i, members in enumerate(satisfaction):
        if len(members) != len(outcomes):
            raise ValueError(
                f"group {group_id}: bundle {i} has satisfaction of {len(members)} members, outcomes of {len(outcomes)}"
            )
    rhos = tuple(spearman(members, outcomes) for members in satisfaction)
    if not rhos:
        return Alignment(index=None, rho=None, rhos=(), reason="no_bundle")
    match choice:
        case "single":
            return Alignment(index=0, rho=rhos[0], rhos=rhos, reason="single")
        case "random":
            index = _draw(len(rhos), seed, group_id)
            return Alignment(index=index, rho=rhos[index], rhos=rhos, reason="random")
        case "aligned":
            return _aligned(rhos, min_rho)


def _aligned(rhos: tuple[float | None, ...], min_rho: float) -> Alignment:
    defined = [(rho, -index) for index, rho in enumerate(rhos) if rho is not None]
    if not defined:
        return Alignment(index=None, rho=None, rhos=rhos, reason="undefined")
    best, negative_index = max(defined)
    if best < min_rho:
        return Alignment(index=None, rho=None, rhos=rhos, reason="below_min_rho")
    return Alignment(index=-negative_index, rho=best, rhos=rhos, reason="aligned")


def _draw(count: int, seed: int, group_id: str) -> int:
    digest = hashlib.blake2b(f"{seed}/{group_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % count


def _present(value: float | None) -> bool:
    return value is not None and not math.isnan(value)


def _doubled_ranks(values: Sequence[float]) -> list[int]:
    """Twice the average rank of each value: whole numbers, whatever the ties."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    ranks = [0] * len(values)
    start = 0
    while start < len(order):
        stop = start + 1
        while stop < len(order) and values[order[stop]] == values[order[start]]:
            stop += 1
        for i in order[start:stop]:
            ranks[i] = start + 1 + stop  # (first + last) of the ranks start + 1 .. stop
        start = stop
    return ranks


def _scaled_covariance(x: Sequence[int], y: Sequence[int]) -> int:
    """n * sum(xy) - sum(x) * sum(y): the covariance times n squared."""
    return len(x) * sum(a * b for a, b in zip(x, y, strict=True)) - sum(x) * sum(y)
