"""The table of updates: one aligned line for each. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stream_rl.observe.learner_time import learner_time
from stream_rl.observe.records import number
from stream_rl.observe.words import counts, discards, show

WIDTH = 120
HEADER = (
    "update  train s  success       held-out  reward  lag  waited for rollouts  gen tok/s  s/update  notes"  # see `row`
)


def row(line: Mapping[str, Any], *, held_out: tuple[float | None, float | None], train_s_before: float | None) -> str:
    """The update of one metrics line, at most `WIDTH` characters.

    `held_out` is the newest (success, standard error). `train_s_before` is the training clock of the line before, from
    which seconds and tokens a second are taken; None where it is not known (the first line after a resume).
    """
    time = learner_time(line, train_s_before)
    update_s = time.train_s or None
    generated = number(line, "tokens", "generated")
    rate = None if generated is None or update_s is None else generated / update_s
    mean, stderr = held_out
    held = show(mean, ".3f") + ("" if mean is None or stderr is None else f" +-{stderr:.3f}")
    wait = None if update_s is None else time.parts["rollout_wait"]
    cells = (
        f"{show(number(line, 'step'), '.0f'):>6}",
        f"{show(number(line, 'train_s'), '.1f'):>7}",
        f"{show(number(line, 'success', 'train'), '.3f'):>7}",
        f"{held:>13}",
        f"{show(number(line, 'reward_mean'), '.3f'):>6}",
        f"{show(number(line, 'lag', 'max'), '.0f'):>3}",
        f"{show(wait, '.2f') + ' s':>11} ({show(time.wait_share, '.0%'):>4})",
        f"{show(rate, '.0f'):>10}",
        f"{show(update_s, '.2f'):>8}",
        _notes(line),
    )
    text = "  ".join(cells).rstrip()
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 3]}..."


def _notes(line: Mapping[str, Any]) -> str:
    notes = []
    lost = discards(line)
    if lost:
        notes.append(f"lost: {counts(lost)}")
    alarms = line.get("alarms")
    if isinstance(alarms, list | tuple) and alarms:
        notes.append(f"alarm: {', '.join(map(str, alarms))}")
    return "; ".join(notes)
