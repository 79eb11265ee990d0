"""Which candidate groups are trained. Pure functions; the result does not depend on arrival order.

`rised` follows the paper's description (similarity to the mixed batch, balanced with redundancy among the selected,
round-robin environment quotas); the exact score is ours, see docs/algorithms/rised.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec
import numpy as np

from stream_rl.rubrics.profile import Float64, normalise


class Candidate(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What a selection may know of a group."""

    group_id: str  # unique; breaks ties
    environment: str  # for quotas
    vector: Float64  # [2 * num_rubrics] normalised profile; zeros without tags
    reward_std: float  # spread of the raw outcome within the group


def select_all(candidates: Sequence[Candidate], count: int) -> list[str]:
    """Every candidate; `count` must be their number."""
    if len(candidates) != count:
        raise ValueError(f"'all' selects every candidate: {len(candidates)} candidates, {count} wanted")
    return sorted(c.group_id for c in candidates)


def select_random(candidates: Sequence[Candidate], count: int, *, seed: int) -> list[str]:
    """A uniform choice, fixed by the seed and the ids."""
    _check(candidates, count)

    def draw(c: Candidate) -> bytes:
        return hashlib.blake2b(f"{seed}/{c.group_id}".encode(), digest_size=8).digest()

    return sorted(c.group_id for c in sorted(candidates, key=draw)[:count])


def select_reward_variance(candidates: Sequence[Candidate], count: int) -> list[str]:
    """The groups whose outcomes differ most (as dynamic sampling prefers); ties by id."""
    _check(candidates, count)
    return sorted(c.group_id for c in sorted(candidates, key=lambda c: (-c.reward_std, c.group_id))[:count])


def select_rised(candidates: Sequence[Candidate], count: int, *, redundancy: float, rotation: int) -> list[str]:
    """Greedy, environments in turn: argmax cos(v, target) - redundancy * max over selected cos(v, v_s).

    The target is the normalised mean of all candidates' profiles. Environments take turns in name order, starting at
    `rotation` modulo their number, so that the odd place of an uneven quota goes round; an exhausted one passes.
    Ties go to the smaller id. O(count * candidates * num_rubrics).
    """
    _check(candidates, count)
    pool = sorted(candidates, key=lambda c: c.group_id)
    vectors = np.stack([c.vector for c in pool])
    to_target = vectors @ normalise(vectors.mean(axis=0))
    closest = np.full(len(pool), -np.inf)
    names = sorted({c.environment for c in pool})
    members = {name: np.array([c.environment == name for c in pool]) for name in names}
    left = np.ones(len(pool), np.bool_)
    chosen: list[str] = []
    turn = rotation
    while len(chosen) < count:
        name = names[turn % len(names)]
        turn += 1
        eligible = left & members[name]
        if not eligible.any():
            continue
        penalty = np.where(np.isfinite(closest), closest, 0.0)
        score = np.where(eligible, to_target - redundancy * penalty, -np.inf)
        pick = int(np.argmax(score))
        left[pick] = False
        closest = np.maximum(closest, vectors @ vectors[pick])
        chosen.append(pool[pick].group_id)
    return sorted(chosen)


def _check(candidates: Sequence[Candidate], count: int) -> None:
    if count > len(candidates):
        raise ValueError(f"cannot select {count} of {len(candidates)} candidates")
