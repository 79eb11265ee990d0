"""How often a run draws each task of a world: the order of tasks is endless, and a split may be short. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from stream_rl.config import Config


def drawn_tasks(config: Config, counts: Mapping[str, int | None]) -> str:
    """ "household endless; dbbench 150 tasks, 896 draws: each about 6 times".

    counts: training tasks of each environment; None or missing for a world that makes as many as are asked for. Draws
    are the groups that all rounds hold; those that are discarded are drawn besides.
    """
    groups = config.updates * config.groups.candidates
    total = sum(entry.share for entry in config.environments)
    told = []
    for entry in config.environments:
        count = counts.get(entry.name)
        draws = round(groups * entry.share / total)
        if count is None:
            told.append(f"{entry.name} endless")
        elif draws > count:
            told.append(f"{entry.name} {count:,} tasks, {draws:,} draws: each about {draws / count:.1f} times")
        else:
            told.append(f"{entry.name} {count:,} tasks, {draws:,} draws: none twice")
    return "; ".join(told)
