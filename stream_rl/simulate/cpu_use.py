"""CPU seconds of a run that was measured, and service times that agree with them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from stream_rl.config import Config
from stream_rl.observe.records import number, numbers
from stream_rl.simulate.cores import Sharing
from stream_rl.simulate.model import simulate
from stream_rl.simulate.profile import Profile
from stream_rl.simulate.work import update_work

_AROUND = ("producers", "environments", "orchestrator", "judges")
_ROUNDS = 12  # of levelling; each halves what is left, or better


class CpuUse(msgspec.Struct, frozen=True, kw_only=True):
    """What the roles of a run used, apart from evaluation."""

    engine_s: float  # of a turn, in the generators' own processes; 0: they have none, so it is in `around_s`
    around_s: float  # of a turn: producers, worlds, orchestrator, judges
    learner_s: float  # of an update, all ranks together


def cpu_use(lines: Sequence[Mapping[str, Any]], turn_tokens: float) -> CpuUse | None:
    """From the metrics lines of a run whose turns hold `turn_tokens` in the mean; None: it did not measure them.

    Lines with an evaluation are left out, as its turns are not counted in them, and so is the first, in which engines
    do some things for the first time.
    """
    clean = [
        line
        for line in lines[1:]
        if numbers(line, "cost", "cpu_s") and not (number(line, "learner_other", "evaluation_s") or 0.0)
    ]
    tokens = sum(number(line, "tokens", "generated") or 0.0 for line in clean)
    if not tokens or not turn_tokens:
        return None
    turns = tokens / turn_tokens
    used = [numbers(line, "cost", "cpu_s") for line in clean]
    return CpuUse(
        engine_s=sum(u.get("generators", 0.0) for u in used) / turns,
        around_s=sum(u.get(role, 0.0) for u in used for role in _AROUND) / turns,
        learner_s=sum(u.get("learner", 0.0) for u in used) / len(used),
    )


def sharing(config: Config, use: CpuUse, cores: int) -> Sharing:
    """Who met whom on the cores of that run. An engine inside its producer's process is not counted twice."""
    return Sharing(
        cores=cores,
        producers=config.generate.producers,
        threads=config.generate.threads,
        learner=config.learner.ranks * config.learner.threads,
        turn_cpu_s=use.around_s if use.engine_s else 0.0,
    )


def level_cpu(profile: Profile, config: Config, use: CpuUse, *, updates: int) -> Profile:
    """Scale generator and learner until a simulation of the run that was measured uses the CPU seconds it used.

    The threads of an engine compute as long as it plays, those of a learner as long as an update takes, so their CPU
    seconds are what they take alone. Waiting for a core is in none of them, and neither is what other programs on the
    machine took. `use.engine_s` must be known.
    """
    x = profile.learner
    alone_s = use.learner_s / (config.learner.ranks * config.learner.threads)
    work_s = update_work(config, x).computing_s
    shorter = alone_s / work_s if work_s and alone_s else 1.0
    learner = msgspec.structs.replace(
        x,
        forward_s=x.forward_s * shorter,
        train_s=x.train_s * shorter,
        teacher_s=x.teacher_s * shorter,
        fixed_s=x.fixed_s * shorter,
        publish_s=x.publish_s * shorter,
    )
    generator = msgspec.structs.replace(profile.generator, turn_cpu_s=use.around_s)
    profile = msgspec.structs.replace(profile, learner=learner, generator=generator)
    for _ in range(_ROUNDS):
        found = simulate(config, profile, updates=updates)
        slower = use.engine_s * found.turns / found.cpu_s["generators"]
        g = profile.generator
        generator = msgspec.structs.replace(g, turn_s=g.turn_s * slower, rollout_s=g.rollout_s * slower)
        profile = msgspec.structs.replace(profile, generator=generator)
    return profile
