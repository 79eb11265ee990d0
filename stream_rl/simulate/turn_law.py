"""From turns of a run to what a turn costs, alone and beside others. Pure."""

from __future__ import annotations

import msgspec
import numpy as np

from stream_rl.simulate.cores import Sharing
from stream_rl.simulate.history import Seconds, TurnTimes

_SAMPLE = 20_000  # turns that are read: a straight line needs no more
_ENOUGH = 0.05  # share of the turns that must be beside a computing learner, and not, to tell the two apart
_BINS = 16  # of turns beside equally many
_LATENCY_FLOOR = 0.02  # of a mean turn: the line through noisy turns may meet the axis below it


class TurnLaw(msgspec.Struct, frozen=True, kw_only=True):
    """seconds = (turn_s + rollouts * rollout_s) * (1 + learner_cost * share beside the learner)."""

    turn_s: float  # of a turn, however few are played
    rollout_s: float  # more for each rollout that is played
    learner_cost: float | None  # by how much a computing learner slows the turns; None: the run cannot tell


def fit_turn_law(turns: TurnTimes, *, producers: int, with_world: bool, sharing: Sharing | None = None) -> TurnLaw:
    """Least squares, with both times kept above zero. Rollouts are those of one of `producers`.

    with_world: a turn is generation and the world's answer, which share cores, and rollouts are all that are played;
    otherwise it is generation alone, and rollouts are those in the generator (Little's law)
    sharing: how much CPU everybody needs, where that was measured: then what turns took from others is known, and each
    is taken as long as it would have been alone
    """
    every = max(1, len(turns.generate_s) // _SAMPLE)
    seconds = turns.generate_s[::every]
    rollouts = turns.rollouts[::every] / producers
    whole = seconds + turns.world_s[::every]
    if with_world:
        seconds = whole
    else:
        rollouts = rollouts * _generator_share(seconds, whole, rollouts)
    beside = turns.beside_learner[::every]
    if sharing:
        alone = [
            sharing.alone_s(*turn) for turn in zip(seconds.tolist(), rollouts.tolist(), beside.tolist(), strict=True)
        ]
        turn_s, rollout_s, _ = _line(np.array(alone), rollouts, np.ones(len(alone)))
        return TurnLaw(turn_s=turn_s, rollout_s=rollout_s, learner_cost=None)
    tells = _ENOUGH < float(np.mean(beside > 0.5)) < 1 - _ENOUGH
    costs = np.arange(0.0, 3.0, 0.02) if tells else np.zeros(1)
    fits = [_line(seconds, rollouts, 1 + cost * beside) for cost in costs]
    best = int(np.argmin([error for _, _, error in fits]))
    turn_s, rollout_s, _ = fits[best]
    return TurnLaw(turn_s=turn_s, rollout_s=rollout_s, learner_cost=float(costs[best]) if tells else None)


def _generator_share(seconds: Seconds, whole: Seconds, rollouts: Seconds) -> Seconds:
    """Share of their time that rollouts are in the generator, for each turn: the mean of turns beside as many."""
    shares = np.empty(len(whole))
    for part in np.array_split(np.argsort(rollouts, kind="stable"), _BINS):
        if len(part):
            shares[part] = seconds[part].sum() / max(whole[part].sum(), 1e-9)
    return shares


def _line(seconds: Seconds, rollouts: Seconds, factor: Seconds) -> tuple[float, float, float]:
    """turn_s, rollout_s and the mean squared error of seconds = factor * (turn_s + rollouts * rollout_s)."""
    floor = _LATENCY_FLOOR * float(seconds.mean())
    turn_s, rollout_s = np.linalg.lstsq(np.stack([factor, factor * rollouts], axis=1), seconds, rcond=None)[0]
    if rollout_s < 0:
        turn_s, rollout_s = float(factor @ seconds / (factor @ factor)), 0.0
    elif turn_s < floor:
        turn_s, load = floor, factor * rollouts
        rollout_s = float(load @ (seconds - floor * factor) / (load @ load))
    error = float(np.mean((seconds - factor * (turn_s + rollouts * rollout_s)) ** 2))
    return float(turn_s), float(rollout_s), error
