"""The runs of a comparison: which depth, which seed, in which order. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from stream_rl.config import Config


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One run that is to be made.

    >>> Trial(depth=2, repeat=0, name="mine-depth2-1", config=Config()).name
    'mine-depth2-1'
    """

    depth: int  # its async depth
    repeat: int  # from 0; runs of one repeat share a seed
    name: str  # folder under `runs/`
    config: Config  # what it runs


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """The updates of a run that are measured: the pipeline is full, and generation goes on beside all of them."""

    warmup: int  # updates left out at the start
    updates: int  # updates that count after them

    @property
    def end(self) -> int:
        """The first update after the window, from 0."""
        return self.warmup + self.updates

    def total(self, depth: int) -> int:
        """Updates that a run of this depth makes: beside the last `depth` ones nothing is generated any more."""
        return self.end + depth


def at_depth(config: Config, depth: int, window: Window, seed: int) -> Config:
    """`config` as one run of a comparison.

    max_lag: left to follow from the depth, since a smaller one would hold a deeper run back
    groups.window: at most depth + 1 rounds are open, so it is cut to that
    eval.every: held-out tasks at the start and at the end only; an evaluation in between would empty the pipeline
    """
    updates = window.total(depth)
    groups = msgspec.structs.replace(config.groups, window=min(config.groups.window, depth + 1))
    held_out = msgspec.structs.replace(config.eval, every=updates if config.eval.every else 0)
    return msgspec.structs.replace(
        config, async_depth=depth, max_lag=0, updates=updates, seed=seed, groups=groups, eval=held_out
    )


def trials(config: Config, depths: Sequence[int], *, repeats: int, window: Window, name: str) -> Iterator[Trial]:
    """All runs in order: every repeat holds each depth once, in turn upwards and downwards, so that drift hits all.

    Repeat r runs with the configuration's seed + r at every depth.
    """
    for repeat in range(repeats):
        for depth in sorted(depths, reverse=repeat % 2 == 1):
            yield Trial(
                depth=depth,
                repeat=repeat,
                name=f"{name}-depth{depth}-{repeat + 1}",
                config=at_depth(config, depth, window, config.seed + repeat),
            )
