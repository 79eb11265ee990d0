"""The constants of the off-policy corrections, apart from their formulas in `learner.correction`: no torch here."""

from __future__ import annotations

from collections.abc import Mapping

from stream_rl.config.algorithm import Algorithm

DEFAULT_LIMITS: Mapping[str, tuple[float, ...]] = {
    "decoupled": (5.0,),  # cap of a token's ratio: AReaL
    "none": (),
    "tis_token": (2.0,),  # cap of a token's ratio: verl, slime
    "tis_sequence": (5.0,),  # cap of a sequence's ratio: SkyRL
    "icepop": (0.5, 5.0),  # low, high of a token's ratio: NeMo-RL
    "mis_sequence": (0.5, 2.0),  # low, high of a sequence's ratio: verl, SkyRL
    "geometric": (0.99, 1.01),  # low, high of the geometric mean of a sequence's ratios: SkyRL
    "m2po": (0.04,),  # the mean squared log ratio stays below it: arXiv:2510.01161; agents: 0.004
    "tv_mask": (0.2,),  # how far a token's probability may have moved: prime-rl
    "veto": (1e-4,),  # a sequence holding a lower ratio is dropped: slime, verl
}


def limits_of(algorithm: Algorithm) -> tuple[float, ...]:
    """The constants in force, in the order of `DEFAULT_LIMITS`.

    Raises `ValueError` when their number is wrong, or they would reject tokens whose ratio is exactly 1.
    """
    method, published = algorithm.correction, DEFAULT_LIMITS[algorithm.correction]
    limits = algorithm.correction_limits or published
    if len(limits) != len(published):
        raise ValueError(f"{method!r} has {len(published)} constants, published {published}; got {limits}")
    if len(limits) == 2 and not limits[0] <= 1 <= limits[1]:
        raise ValueError(f"{method!r} keeps ratios from low to high; need low <= 1 <= high, got {limits}")
    if method == "veto" and limits[0] > 1:
        raise ValueError(f"'veto' drops sequences with a ratio below its constant; need at most 1, got {limits[0]:g}")
    return limits
