"""Real runs of this machine beside what `stream-rl simulate` says of them, part by part."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stream_rl.config import Config, load
from stream_rl.observe.rundir import RunDirectory, read_json_lines
from stream_rl.simulate.measured import Means, means_of_run
from stream_rl.simulate.model import simulate
from stream_rl.simulate.prediction import Prediction
from stream_rl.simulate.profile import Profile


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One number of a run, and what was predicted of it."""

    name: str
    measured: float
    predicted: float


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One prediction beside what was measured or published."""

    name: str
    measured_s: float  # of an update
    predicted_s: float  # of an update
    note: str = ""
    parts: tuple[Part, ...] = ()  # where an error comes from; empty: nothing but the update is known

    @property
    def error(self) -> float:
        """Relative."""
        return self.predicted_s / self.measured_s - 1


def compare(run: RunDirectory, profile: Profile, name: str, note: str) -> Row:
    """What the simulation of this very run gives with `profile`."""
    lines = list(read_json_lines(run.metrics))
    config = load([run.config])
    found = simulate(config, profile, updates=len(lines))
    return Row(
        name=name,
        measured_s=lines[-1]["train_s"] / len(lines),
        predicted_s=found.update_s,
        note=note,
        parts=parts(config, means_of_run(run), found),
    )


def parts(config: Config, means: Means, found: Prediction) -> tuple[Part, ...]:
    """Seconds an update, of an episode and of a round; then the CPU seconds an update."""
    episodes = config.groups.candidates * config.groups.size
    pairs = {
        "rollout wait": (means.rollout_wait_s, found.rollout_wait_s),
        "judge wait": (means.judge_wait_s, found.judge_wait_s),
        "learner": (means.learner_s, sum(found.learner.values())),
        "round, first lease to last rollout": (means.round_s, found.round_s),
        "episode": (means.rollout_s, found.rollout_s),
        "turns of an episode": (means.turns, found.turns / episodes),
    }
    if (use := means.use) and found.cpu_s:
        turns = means.turns * episodes
        pairs["CPU of the engine"] = (use.engine_s * turns, found.cpu_s["generators"])
        pairs["CPU around it"] = (use.around_s * turns, found.cpu_s["around"])
        pairs["CPU of the learner"] = (use.learner_s, found.cpu_s["learner"])
    return tuple(Part(name=name, measured=a, predicted=b) for name, (a, b) in pairs.items())


def render(rows: Sequence[Row]) -> str:
    """A table for people: the updates first, then their parts."""
    width = max(len(row.name) for row in rows)
    lines = [f"{'':<{width}} {'measured':>9} {'predicted':>9} {'error':>7}"]
    lines += [
        f"{r.name:<{width}} {r.measured_s:>9.2f} {r.predicted_s:>9.2f} {r.error:>+7.1%}  {r.note}".rstrip()
        for r in rows
    ]
    for row in rows:
        if row.parts:
            lines += ["", f"{row.name} {row.note}".rstrip()]
            lines += [
                f"  {part.name:<36} {part.measured:>9.3f} {part.predicted:>9.3f} {_error(part):>7}"
                for part in row.parts
            ]
    return "\n".join(lines)


def _error(part: Part) -> str:
    return f"{part.predicted / part.measured - 1:+.1%}" if part.measured else "-"
