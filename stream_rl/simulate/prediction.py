"""What a simulation says, for programs and for people."""

from __future__ import annotations

from typing import Any

import msgspec


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """Means over the updates of a run, the filling of the pipeline included; evaluation is not counted."""

    updates: int  # simulated
    update_s: float  # training seconds of an update
    rollout_wait_s: float  # of an update: the learner had nothing to train
    judge_wait_s: float  # of an update: only verdicts were missing
    learner: dict[str, float]  # seconds of an update by part, named as in `metrics.jsonl`; with the waits, `update_s`
    lag_max: int  # of any trained group, in updates
    lag_mean: float  # of trained groups
    utilisation: dict[str, float]  # role -> share of its time in which it does its work
    rollouts_per_s: float  # generated
    rollout_s: float  # of an episode, mean
    round_s: float  # from a round's first lease to its last rollout, mean
    group_s: float  # from lease to last rollout, mean
    group_s_max: float  # the same, longest
    turns: float  # of all rollouts, an update
    cpu_s: dict[str, float] = {}  # CPU seconds of an update where cores are shared: generators, around, learner
    notes: tuple[str, ...] = ()  # what the model leaves out here, or would not go well


def as_json(prediction: Prediction) -> dict[str, Any]:
    """As plain data."""
    built: dict[str, Any] = msgspec.to_builtins(prediction)
    return built


def in_words(prediction: Prediction, title: str) -> str:
    """A table."""
    p = prediction
    shares = "   ".join(f"{role} {share:.0%}" for role, share in p.utilisation.items())
    lines = [
        f"{title}: {p.updates} updates, simulated",
        f"  update          {_s(p.update_s)}",
        f"  rollout wait    {_s(p.rollout_wait_s)}  {p.rollout_wait_s / p.update_s:6.1%} of the learner's time",
        f"  judge wait      {_s(p.judge_wait_s)}  {p.judge_wait_s / p.update_s:6.1%}",
    ]
    for part, seconds in p.learner.items():
        if seconds:
            lines.append(f"  {part.removesuffix('_s'):<15} {_s(seconds)}  {seconds / p.update_s:6.1%}")
    lines += [
        f"  busy            {shares}",
        f"  lag             {p.lag_mean:.2f} on average, {p.lag_max} at most",
        f"  rollouts        {p.rollouts_per_s:.3g} a second; a group takes {_s(p.group_s).strip()} on average, "
        f"{_s(p.group_s_max).strip()} at most",
    ]
    if p.cpu_s:
        used = "   ".join(f"{role} {seconds:.2f} s" for role, seconds in p.cpu_s.items())
        lines.append(f"  CPU an update   {used}   {sum(p.cpu_s.values()) / p.update_s:.2f} cores in use")
    lines += [f"  note: {note}" for note in p.notes]
    return "\n".join(lines)


def _s(seconds: float) -> str:
    return f"{seconds:9.1f} s" if seconds >= 100 else f"{seconds:9.2f} s" if seconds >= 1 else f"{seconds:9.3f} s"
