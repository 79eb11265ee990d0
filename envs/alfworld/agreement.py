"""Does the accelerated engine answer as the stock one does?"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator

from envs.alfworld import package
from envs.alfworld.engine import Engine, GameData, Seen

log = logging.getLogger(__name__)

_STEPS = 12  # a stock step takes about 40 ms
UNKNOWN = "dance on the moon"  # a command no game understands


def can_accelerate(game: GameData) -> bool:
    """Whether the packages are known ones and both engines answer alike over some steps; if not, the log says why."""
    why = package.unknown_release(package.installed()) or difference(game)
    if why:
        log.warning("alfworld: played without acceleration, about twenty times slower: %s", why)
    return not why


def difference(game: GameData, *, steps: int = _STEPS, seed: int = 0) -> str:
    """Where the two engines differ over a random walk through a game; empty when they do not."""
    stock, fast = Engine(fast=False), Engine(fast=True)
    try:
        for place, (ours, theirs) in enumerate(_walk(fast, stock, game, steps, seed)):
            if ours != theirs:
                return f"answer {place} differs from the stock one: {ours} is not {theirs}"
    except Exception as error:  # private parts of other packages: whatever fails there, stock ones are the remedy
        return f"{type(error).__name__}: {error}"
    return ""


def _walk(fast: Engine, stock: Engine, game: GameData, steps: int, seed: int) -> Iterator[tuple[Seen, Seen]]:
    rng = random.Random(seed)
    for engine in (fast, stock):
        engine.load(game)
    ours, theirs = fast.reset(), stock.reset()
    yield ours, theirs
    for place in range(steps):
        command = UNKNOWN if place == steps // 2 else rng.choice(theirs.commands)
        ours, theirs = fast.step(command), stock.step(command)
        yield ours, theirs
