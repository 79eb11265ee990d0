"""The groups that are rolled out: which world, how many turns each member makes. Deterministic by seed."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from stream_rl.config import Config
from stream_rl.errors import ConfigError
from stream_rl.simulate.profile import EnvironmentTimes, Profile

MOST_ENDS = 2_500_000  # ends of rollouts that are simulated one by one
_BLOCK = 1024  # groups drawn at once


def environment_times(config: Config, profile: Profile) -> list[EnvironmentTimes]:
    """The profile's times of each of the configuration's worlds, in its order. Raises `ConfigError` for one missing."""
    known = {times.name: times for times in profile.environments}
    found = []
    for i, entry in enumerate(config.environments):
        if entry.name not in known:
            raise ConfigError(
                f"environments.{i}.name",
                f"the profile of service times says nothing about {entry.name!r}; "
                f"it knows {', '.join(sorted(known))}. Add an [[environments]] entry with its turns, or measure a run.",
            )
        found.append(known[entry.name])
    return found


class Grain(msgspec.Struct, frozen=True, kw_only=True):
    """How finely groups are simulated: neighbours by length, `weight` at a time, end as their longest does."""

    weight: int  # rollouts that end together; divides the size of a group
    stretch: float  # turns made so, over turns there are: what the generator's load is divided by


def grain(config: Config, worlds: list[EnvironmentTimes], updates: int, seed: int) -> Grain:
    """Every rollout for itself, unless the run has more than some millions of them."""
    size, groups = config.groups.size, updates * config.groups.candidates
    weight = min(w for w in range(1, size + 1) if size % w == 0 and (groups * size <= MOST_ENDS * w or w == size))
    if weight == 1:
        return Grain(weight=1, stretch=1.0)
    sample = [turns for turns, _ in zip(episodes(config, worlds, seed), range(_BLOCK), strict=False)]
    made = weight * sum(sum(coarse(turns, weight)) for turns in sample)
    return Grain(weight=weight, stretch=made / sum(map(sum, sample)))


def coarse(turns: list[float], weight: int) -> list[float]:
    """The longest of every `weight` neighbours by length. The longest of all stays.

    >>> coarse([3.0, 9.0, 4.0, 8.0], 2)
    [4.0, 9.0]
    """
    return sorted(turns)[weight - 1 :: weight]


def episodes(
    config: Config, worlds: list[EnvironmentTimes], seed: int, *, spread: float = 0.0
) -> Iterator[list[float]]:
    """Turns of each member of one group after another, endless. Worlds come in proportion to their shares.

    An unlucky rollout, whose turns take longer than others', has so many more of them: up to 1 + `spread` times.
    """
    rng = np.random.default_rng(seed)
    shares = np.array([entry.share for entry in config.environments])
    limits = [config.limits(entry.name).max_turns for entry in config.environments]
    turns = [np.minimum(world.turns, limit) for world, limit in zip(worlds, limits, strict=True)]
    size = config.groups.size
    while True:
        which = rng.choice(len(worlds), size=_BLOCK, p=shares / shares.sum())
        place = rng.random((_BLOCK, size))
        block = np.empty((_BLOCK, size))
        for i, values in enumerate(turns):
            rows = which == i
            block[rows] = values[(place[rows] * len(values)).astype(int)]
        if spread:
            block *= rng.uniform(1 - spread, 1 + spread, block.shape)
        yield from block.tolist()


class WorldMix(msgspec.Struct, frozen=True, kw_only=True):
    """The worlds of one producer, by their shares of the episodes."""

    step_s: float  # of an answer, mean
    worker_s: float  # of the busiest world, for a turn of all rollouts' mix: its workers answer one after the other

    @classmethod
    def of(cls, config: Config, worlds: list[EnvironmentTimes]) -> WorldMix:
        """Means over the configuration's worlds, whose times are `worlds`."""
        total = sum(entry.share for entry in config.environments)
        pairs = [(entry, entry.share / total, world) for entry, world in zip(config.environments, worlds, strict=True)]
        return cls(
            step_s=sum(share * world.step_s for _, share, world in pairs),
            worker_s=max(share * world.worker_s / entry.workers for entry, share, world in pairs),
        )
