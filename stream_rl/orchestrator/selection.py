"""Which candidate groups are trained. Pure functions; the result does not depend on arrival order.

`rised` follows the paper's description (similarity to the mixed batch, balanced with redundancy among the selected,
round-robin environment quotas); the exact score is ours, see docs/algorithms/rised.md. `mmr` is its classic relative.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from stream_rl.rubrics.profile import Float64, normalise

# A matrix product may round equal rows differently by where they stand; that must not decide between equal scores.
_SCORE_DECIMALS = 12


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
    pool = _Pool(candidates)
    names = sorted({c.environment for c in candidates})
    members = {name: np.array([c.environment == name for c in pool.candidates]) for name in names}
    chosen: list[str] = []
    turn = rotation
    while len(chosen) < count:
        eligible = pool.left & members[names[turn % len(names)]]
        turn += 1
        if eligible.any():
            chosen.append(pool.take(pool.typical - redundancy * pool.closest, eligible))
    return sorted(chosen)


def select_mmr(candidates: Sequence[Candidate], count: int, *, redundancy: float) -> list[str]:
    """Maximal marginal relevance: argmax (1 - l) * cos(v, target) - l * max over selected cos(v, v_s), greedy.

    l is `redundancy`, clamped to [0, 1]; target as in `select_rised`. Environments have no quotas. Ties go to the
    smaller id. Source: Carbonell and Goldstein 1998, with the query replaced by the mixed batch.
    """
    _check(candidates, count)
    weight = min(1.0, max(0.0, redundancy))
    pool = _Pool(candidates)
    return sorted(pool.take((1 - weight) * pool.typical - weight * pool.closest, pool.left) for _ in range(count))


class _Pool:
    """Candidates in id order, and what a greedy choice knows of each."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self.candidates = sorted(candidates, key=lambda c: c.group_id)
        self._vectors = np.stack([c.vector for c in self.candidates])
        self.typical = self._vectors @ normalise(self._vectors.mean(axis=0))  # [candidates] cosine with the target
        self.closest = np.zeros(len(self.candidates))  # [candidates] cosine with the nearest one taken; 0 before any
        self.left = np.ones(len(self.candidates), np.bool_)  # [candidates] not taken yet

    def take(self, scores: Float64, among: npt.NDArray[np.bool_]) -> str:
        """Take the best scored of `among`, which holds one at least; returns its id."""
        first = bool(self.left.all())
        pick = int(np.argmax(np.where(among, np.round(scores, _SCORE_DECIMALS), -np.inf)))
        self.left[pick] = False
        cosines = self._vectors @ self._vectors[pick]
        self.closest = cosines if first else np.maximum(self.closest, cosines)
        return self.candidates[pick].group_id


def _check(candidates: Sequence[Candidate], count: int) -> None:
    if count > len(candidates):
        raise ValueError(f"cannot select {count} of {len(candidates)} candidates")
