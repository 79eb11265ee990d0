"""The service times of a run that has been: what `simulate --from RUN` starts from."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stream_rl.config import Config, load
from stream_rl.observe.learner_time import LearnerTime, learner_times
from stream_rl.observe.rundir import RunDirectory
from stream_rl.simulate.cpu_use import CpuUse, cpu_use, level_cpu, sharing
from stream_rl.simulate.history import History, read_history, read_lines
from stream_rl.simulate.model import simulate
from stream_rl.simulate.profile import EnvironmentTimes, GeneratorTimes, JudgeTimes, LearnerTimes, Profile
from stream_rl.simulate.turn_law import TurnLaw, fit_turn_law
from stream_rl.simulate.work import update_work

CORES_OF_A_GENERATOR = 1.5  # with its worlds, the judge and the orchestrator: where a run cannot tell
_STEPS = 20  # values that stand for the turns of all episodes of a world
_WAITED = 0.1  # of an update: the learner did wait
_ROUNDS = 12  # of levelling; each halves what is left, or better
_TOGETHER_S = 0.1  # leases nearer to each other are one moment
_NO_CPU = "; it did not measure CPU seconds, so what roles took from each other on shared cores is a guess"
_NVIDIA = Path("/dev/nvidiactl")


def profile_of_run(run: RunDirectory, *, cores: int | None = None) -> Profile:
    """Service times of a run, as they would be if nothing else computed beside them.

    cores: that its roles shared; 0: each had devices of its own; None: those of this machine, unless it has a GPU

    What is read of a run on shared cores holds what its roles took from each other. So the times are levelled: a
    simulation of the very same run must use the measured CPU seconds (`level_cpu`); where those are not known, or
    devices are not shared, it must give the measured seconds of an episode and of an update's passes.
    Raises `UsageError` or `LedgerError` where the run does not hold what is needed.
    """
    if cores is None:
        cores = 0 if _NVIDIA.exists() else len(os.sched_getaffinity(0))
    config = load([run.config])
    lines = read_lines(run)
    history = read_history(run, lines)
    times = list(learner_times(lines))
    use = cpu_use(lines, history.turn_tokens) if cores else None
    law = fit_turn_law(
        history.turns,
        producers=config.generate.producers,
        with_world=cores > 0,
        sharing=sharing(config, use, cores) if use else None,
    )
    profile = Profile(
        note=f"measured of {run.root.name}, {len(lines)} updates" + ("" if use or not cores else _NO_CPU),
        cores=cores,
        generator=_generator(config, history, lines, law, cores),
        environments=_environments(history, cores),
        learner=_learner(config, lines, times),
        judge=JudgeTimes(answer_s=history.judge_s),
        handover_s=history.handover_s,
        invalid_share=_invalid_share(lines),
    )
    if use and use.engine_s:
        return level_cpu(profile, config, use, updates=len(lines))
    profile = level(profile, config, updates=len(lines), measured=_means(history, times))
    return _with_cpu(profile, config, use, updates=len(lines)) if use else profile


def means_of_run(run: RunDirectory) -> Means:
    """What a simulation of the run is compared with. Raises as `profile_of_run` does."""
    lines = read_lines(run)
    history = read_history(run, lines)
    means = _means(history, list(learner_times(lines)))
    return msgspec.structs.replace(means, use=cpu_use(lines, history.turn_tokens))


def _means(history: History, times: Sequence[LearnerTime]) -> Means:
    return Means(
        update_s=sum(t.train_s for t in times) / len(times),
        rollout_wait_s=sum(t.parts["rollout_wait"] for t in times) / len(times),
        passes_s=sum(_passes_s(t) for t in times) / len(times),
        rollout_s=float(history.rollouts.seconds.mean()),
        judge_wait_s=sum(t.parts["judge_wait"] for t in times) / len(times),
        learner_s=sum(t.train_s - t.parts["rollout_wait"] - t.parts["judge_wait"] for t in times) / len(times),
        round_s=history.round_s,
        turns=float(history.rollouts.turns.mean()),
    )


class Means(msgspec.Struct, frozen=True, kw_only=True):
    """Of a run that was measured, over all its updates."""

    update_s: float  # of an update, by the training clock
    rollout_wait_s: float  # of an update
    passes_s: float  # of an update: prox, teacher and train passes together
    rollout_s: float  # of an episode
    judge_wait_s: float = 0.0  # of an update
    learner_s: float = 0.0  # of an update in which the learner did not wait
    round_s: float = 0.0  # from a round's first lease to its last rollout
    turns: float = 0.0  # of an episode
    use: CpuUse | None = None  # CPU seconds; None: not measured


def level(profile: Profile, config: Config, *, updates: int, measured: Means) -> Profile:
    """Scale generator and learner until `simulate` gives the means of the run that was measured.

    Where the learner waited for rollouts, the time of an update tells how fast they come; where it did not, only the
    time of an episode does.
    """
    waited = measured.rollout_wait_s > _WAITED * measured.update_s
    for _ in range(_ROUNDS):
        found = simulate(config, profile, updates=updates)
        passes = sum(found.learner[part] for part in ("prox_s", "teacher_s", "train_s"))
        pair = (measured.update_s, found.update_s) if waited else (measured.rollout_s, found.rollout_s)
        slower = pair[0] / pair[1] if pair[1] else 1.0
        longer = measured.passes_s / passes if passes else 1.0
        g, x = profile.generator, profile.learner
        profile = msgspec.structs.replace(
            profile,
            generator=msgspec.structs.replace(g, turn_s=g.turn_s * slower, rollout_s=g.rollout_s * slower),
            learner=msgspec.structs.replace(
                x, forward_s=x.forward_s * longer, train_s=x.train_s * longer, teacher_s=x.teacher_s * longer
            ),
        )
    return profile


def _with_cpu(profile: Profile, config: Config, use: CpuUse, *, updates: int) -> Profile:
    """Where an engine is inside its producer's process: what is not its threads' is around it."""
    found = simulate(config, profile, updates=updates)
    around_s = max(0.0, use.around_s - found.cpu_s["generators"] / found.turns)
    generator = msgspec.structs.replace(profile.generator, turn_cpu_s=around_s)
    return msgspec.structs.replace(profile, generator=generator)


def _generator(
    config: Config, history: History, lines: Sequence[Mapping[str, Any]], law: TurnLaw, cores: int
) -> GeneratorTimes:
    entries = [line["roles"].get("weights", {}) for line in lines if "roles" in line]
    pauses = [entry for entry in entries if "pause_s" in entry]
    updates = sum(p.get("updates", 1) for p in pauses)
    demand = CORES_OF_A_GENERATOR
    if cores and law.learner_cost is not None:
        learner = config.learner.ranks * config.learner.threads
        demand = (cores * (1 + law.learner_cost) - learner) / config.generate.producers
    return GeneratorTimes(
        turn_s=law.turn_s,
        rollout_s=law.rollout_s,
        spread=min(1.0, _spread(history)),
        turn_tokens=history.turn_tokens,
        pause_s=sum(p["pause_s"] for p in pauses) / updates if updates else 0.0,
        cores=max(demand, float(config.generate.threads)),
    )


def _spread(history: History) -> float:
    """Half the width of an even distribution as wide as that of rollouts with equal turns, leased at one moment."""
    rollouts = history.rollouts
    cells: dict[tuple[int, int], list[float]] = {}
    for leased_s, turns, seconds in zip(history.leased_s, rollouts.turns, rollouts.seconds, strict=True):
        cells.setdefault((round(leased_s / _TOGETHER_S), int(turns)), []).append(float(seconds))
    squares = freedom = 0.0
    for values in cells.values():
        if len(values) > 1:
            squares += float(np.sum((np.array(values) / np.mean(values) - 1) ** 2))
            freedom += len(values) - 1
    return math.sqrt(3 * squares / freedom) if freedom else 0.0


def _environments(history: History, cores: int) -> tuple[EnvironmentTimes, ...]:
    rollouts = history.rollouts
    names = np.array(rollouts.environment)
    found = []
    for name in sorted(set(rollouts.environment)):
        here = names == name
        middles = (np.arange(_STEPS) + 0.5) / _STEPS
        turns = np.quantile(rollouts.turns[here], middles, method="inverted_cdf")
        # On shared cores the world's answer is part of the turn that was fitted.
        step_s = 0.0 if cores else float(rollouts.world_s[here].sum() / rollouts.turns[here].sum())
        found.append(EnvironmentTimes(name=name, turns=tuple(float(t) for t in turns), step_s=step_s))
    return tuple(found)


def _learner(config: Config, lines: Sequence[Mapping[str, Any]], times: Sequence[LearnerTime]) -> LearnerTimes:
    silent = float(np.mean([sum(line.get("zero_variance", {}).values()) for line in lines]))
    taught = [line["distill"]["share"] for line in lines if line.get("distill", {}).get("share") is not None]
    # Passes per second of each part: those of a learner whose every pass takes a second, against what was measured.
    unit = LearnerTimes(
        ranks=config.learner.ranks,
        forward_s=1.0,
        train_s=1.0,
        teacher_s=1.0,
        silent_share=min(1.0, silent),
        taught_share=float(np.mean(taught)) if taught and config.algorithm.distillation != "none" else 1.0,
    )
    passes = update_work(config, unit)
    mean = {part: float(np.mean([t.parts[part] for t in times])) for part in times[0].parts}
    train_s = mean["train"] / passes.train_s if passes.train_s else 0.0
    forward_s = mean["prox"] / passes.prox_s if passes.prox_s else train_s / 3
    return LearnerTimes(
        ranks=config.learner.ranks,
        forward_s=forward_s,
        train_s=train_s,
        teacher_s=mean["teacher"] / passes.teacher_s if passes.teacher_s else 0.0,
        fixed_s=max(0.0, mean["other"]),
        publish_s=_write_s(lines, mean["publish"]),
        silent_share=unit.silent_share,
        taught_share=unit.taught_share,
    )


def _write_s(lines: Sequence[Mapping[str, Any]], publish_s: float) -> float:
    """Seconds to write a version; what the learner was held up by it, `publish_s`, in runs that do not say."""
    took = [line["roles"]["weights"].get("write_s") for line in lines if "weights" in line.get("roles", {})]
    known = [seconds for seconds in took if seconds is not None]
    return float(np.mean(known)) if known else publish_s


def _passes_s(time: LearnerTime) -> float:
    return sum(time.parts[part] for part in ("prox", "teacher", "train"))


def _invalid_share(lines: Sequence[Mapping[str, Any]]) -> float:
    candidates = sum(line["groups"]["candidate"] for line in lines)
    discarded = sum(line["groups"].get("discarded", {}).get("too_few_valid", 0) for line in lines)
    return discarded / (candidates + discarded) if candidates else 0.0
