"""Upstream's own scripted player of a game. It looks at the game's facts, so it is no player of ours."""

from __future__ import annotations

import logging
import random
import sys
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)


def play_expert(path: Path, *, fast: bool, seed: int = 0) -> tuple[list[str], bool]:
    """Commands of upstream's hand-coded expert for the game file `path`, and whether they won.

    It draws from Python's global chance, which is seeded here. It gives up after 200 steps, and stops on some games
    that can be won; both are told in the log.
    """
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredExpert, AlfredExpertType
    from textworld import EnvInfos
    from textworld.envs import PddlEnv

    make: Any = PddlEnv
    if fast:
        from envs.alfworld.fast import FastPddlEnv

        make = FastPddlEnv
    game = AlfredDemangler(make(EnvInfos(won=True, admissible_commands=True)), shuffle=False)
    expert = AlfredExpert(game, expert_type=AlfredExpertType.HANDCODED)
    commands: list[str] = []
    arguments, chance = sys.argv, random.getstate()
    random.seed(seed)
    try:
        expert.load(str(path))
        state, done = expert.reset(), False
        while not done:
            commands.append(state["extra.expert_plan"][0])
            state, _, done = expert.step(commands[-1])
        return commands, bool(state["won"])
    except Exception as error:  # it raises a bare Exception when it gives up, and others where its script has a gap
        log.warning("alfworld: upstream's expert stopped at %s: %s: %s", path, type(error).__name__, error)
        return commands, False
    finally:
        sys.argv = arguments
        random.setstate(chance)
