"""What a run came to: success, time, cost, losses and advice, from its configuration and its records. Pure."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from stream_rl.observe.advice import Facts, advise
from stream_rl.observe.learner_time import PARTS, learner_times
from stream_rl.observe.progress import Estimate, Evaluated, evaluations, gain, rate, seconds_to
from stream_rl.observe.records import number, numbers, shares, sum_numbers, table
from stream_rl.observe.switches import switches

THRESHOLDS = (0.5, 0.6)
_PRODUCER = re.compile(r"producer-?[^/]*")  # its generator and worlds have names with a slash
_WEIGHTS = "weights"  # the entry of `roles` that holds weight updates and is no role
_TROUBLE = frozenset(
    {"role_restarted", "producer_left", "producer_quarantined", "weights_failed", "failing", "killed", "judge"}
)
_TOKENS = ("generated", "trained", "discarded", "judge", "teacher")  # of every run
_MORE_TOKENS = ("judge_prompt", "judge_completion", "reference", "writing")  # of runs that count them


class RaisedAlarm(msgspec.Struct, frozen=True, kw_only=True):
    """A limit that was passed."""

    name: str  # "entropy", "all_fail" or "cut_actions"
    step: int  # update
    value: float | None  # measured
    limit: float | None  # allowed
    advice: str  # what to change


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A run in numbers. None: not measured."""

    run: str  # its name
    end: str  # how it ended, in words
    complete: bool  # every update was trained
    switches: dict[str, Any]  # `[algorithm]`: the main options, and the others that are not the default
    updates: int  # trained
    train_s: float  # training seconds; evaluation and start-up do not count
    wall_s: float  # all seconds
    start: Estimate | None  # held-out success of the first evaluation
    final: Estimate | None  # of the last one
    gain: Estimate | None  # final - start; None with fewer than two evaluations
    best: Evaluated | None  # the evaluation with the highest success
    seconds_to: dict[str, float | None]  # "0.5" -> training seconds until held-out success reached it
    update_s: float | None  # mean training seconds of an update
    learner_s: dict[str, float]  # mean training seconds of an update, by part
    learner: dict[str, float]  # share of the learner's training time by part; adds up to 1
    evaluation_s: float  # seconds the learner stood still for held-out evaluations
    startup_s: float  # seconds it waited for producers to start
    paused_s: float  # seconds it waited because people had paused the run
    roles: dict[str, dict[str, float]]  # name -> share of its time by state; each adds up to 1
    slots: dict[str, dict[str, float]]  # role that does many things at once -> share of its slot-seconds by state
    levels: dict[str, float]  # permits, groups by stage, messages that wait: mean over time
    loop_lag_s: float | None  # latest the orchestrator's event loop ever was
    weight_updates_s: dict[str, float]  # seconds all generators together were paused, and loading, for new weights
    lag_max: int | None  # updates, over all trained groups
    lag_mean: float | None  # updates
    lag_histogram: dict[str, int]  # lag -> trained groups
    lag_origins: dict[str, float]  # phase -> updates that a trained group aged in it, in the mean; adds up to lag_mean
    tokens: dict[str, int]  # generated, trained, discarded, judge, teacher, and what else the run counts
    judge_price: float | None  # of the judge's tokens, in the currency of the endpoints' prices
    device_s: dict[str, float]  # role -> seconds that its devices were held for it, used or not
    cpu_s: dict[str, float]  # role -> CPU seconds that it used; empty where that was not measured
    generated_per_s: float | None  # tokens generated in a training second
    groups: dict[str, int]  # candidate and selected
    discarded: dict[str, int]  # reason -> groups, "not_selected" included
    discarded_rollouts: dict[str, int]  # reason -> rollouts in those groups; empty where they were not counted
    rerolled: dict[str, int]  # reason -> attempts at rollouts that were dropped and played again
    cut: dict[
        str, dict[str, float]
    ]  # "kept", "cut" -> mean turns, tokens, reward of rollouts that count, and of others
    failed_rollouts: int | None  # a world or a generator failed; they are in no statistic
    all_pass: float | None  # mean share of groups whose members all succeed
    all_fail: float | None  # mean share of groups whose members all fail
    orsd: dict[str, float]  # written rubrics: mean over updates of each number of the metrics key; empty without them
    alarms: tuple[RaisedAlarm, ...]  # in order
    trouble: dict[str, int]  # kind of event -> how often
    advice: tuple[str, ...]  # what to change


def summarise(
    run: str,
    *,
    metrics: Iterable[Mapping[str, Any]],
    evals: Iterable[Mapping[str, Any]],
    events: Iterable[Mapping[str, Any]],
    config: Mapping[str, Any] | None = None,
) -> Summary:
    """The summary of a run from its config.toml and the records of its metrics.jsonl, eval.jsonl and events.jsonl."""
    lines, events, points = ordered(metrics), list(events), evaluations(evals)
    times = list(learner_times(lines))
    learner_s = sum_numbers(time.parts for time in times)
    train_s = max((number(line, "train_s") or 0.0 for line in lines), default=0.0)
    tokens = dict.fromkeys(_TOKENS, 0.0) | sum_numbers(numbers(line, "tokens") for line in lines)
    thrown = sum_numbers(numbers(line, "rollouts", "discarded") for line in lines)
    discarded = sum_numbers(numbers(line, "groups", "discarded") for line in lines)
    groups = {key: int(sum(number(line, "groups", key) or 0 for line in lines)) for key in ("candidate", "selected")}
    histogram = sum_numbers(numbers(line, "lag", "histogram") for line in lines)
    change = gain(points[0], points[-1]) if len(points) > 1 else None
    roles, slots = _roles(lines, "roles"), _roles(lines, "slots")
    end, complete = _end(events, begun=bool(lines))
    all_pass, all_fail = (_mean(lines, "zero_variance", key) for key in ("all_pass", "all_fail"))
    learner = shares(learner_s)
    return Summary(
        run=run,
        end=end,
        complete=complete,
        switches=switches(config or {}),
        updates=len(lines),
        train_s=train_s,
        wall_s=max((number(record, "wall_s") or 0.0 for record in lines), default=0.0),
        start=rate(points[0]) if points else None,
        final=rate(points[-1]) if points else None,
        gain=change,
        best=max(points, key=lambda p: p.success, default=None),
        seconds_to={f"{threshold:g}": seconds_to(points, threshold) for threshold in THRESHOLDS},
        update_s=sum(learner_s.values()) / len(times) if times else None,
        learner_s={part: learner_s[part] / len(times) for part in PARTS} if times else {},
        learner=learner,
        evaluation_s=sum(time.evaluation_s for time in times),
        startup_s=sum(time.startup_s for time in times),
        paused_s=sum(time.paused_s for time in times),
        roles={name: shares(states) for name, states in roles.items()},
        slots={name: shares(states) for name, states in slots.items()},
        levels=_levels(lines),
        loop_lag_s=max(
            (late for line in lines if (late := number(line, "loop_lag", "max_s")) is not None), default=None
        ),
        weight_updates_s=sum_numbers(numbers(line, "roles", _WEIGHTS) for line in lines),
        lag_max=_lag_max(lines),
        lag_mean=_lag_mean(histogram),
        lag_histogram={lag: int(histogram[lag]) for lag in sorted(histogram, key=int)},
        lag_origins=_lag_origins(lines),
        tokens={name: int(tokens[name]) for name in (*_TOKENS, *_MORE_TOKENS) if name in tokens},
        judge_price=_sum(lines, "judge", "price"),
        device_s=sum_numbers(numbers(line, "cost", "device_s") for line in lines),
        cpu_s=sum_numbers(numbers(line, "cost", "cpu_s") for line in lines),
        generated_per_s=tokens["generated"] / train_s if train_s else None,
        groups=groups,
        discarded={reason: int(n) for reason, n in sorted(discarded.items())},
        discarded_rollouts={reason: int(n) for reason, n in sorted(thrown.items())},
        rerolled={reason: int(n) for reason, n in sorted(sum_numbers(_rerolled(lines)).items())},
        cut={part: _means(lines, "cut", part) for part in ("kept", "cut") if _means(lines, "cut", part)},
        failed_rollouts=None if (failed := _sum(lines, "invalid_trajectories")) is None else int(failed),
        all_pass=all_pass,
        all_fail=all_fail,
        orsd=_means(lines, "orsd"),
        alarms=tuple(_alarm(event) for event in events if event.get("type") == "alarm"),
        trouble=_trouble(events),
        advice=advise(
            Facts(
                learner=learner,
                producers={name: shares(states) for name, states in roles.items() if _PRODUCER.fullmatch(name)},
                generators=shares(sum_numbers(s for name, s in roles.items() if name.endswith("/generator"))),
                orchestrator=shares(roles.get("orchestrator", {})),
                async_depth=_last(lines, "async_depth"),
                lost=_lost(discarded, groups["candidate"]),
                all_pass=all_pass,
                all_fail=all_fail,
                abstained=_mean(lines, "judge", "abstained_share"),
                gain_unclear=change is not None and change.low < 0 < change.high,
            )
        ),
    )


def ordered(lines: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Metrics lines by update; of an update trained again after a resume, the newer counts."""
    found = {int(step): line for line in lines if (step := number(line, "step")) is not None}
    return [found[step] for step in sorted(found)]


def _roles(lines: Sequence[Mapping[str, Any]], key: str) -> dict[str, dict[str, float]]:
    names = sorted({name for line in lines for name in table(line, key)} - {_WEIGHTS})
    return {name: sum_numbers(numbers(line, key, name) for line in lines) for name in names}


def _levels(lines: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Means over the time between the lines; of a line without a predecessor, its whole time counts."""
    total: dict[str, float] = {}
    seconds = before = 0.0
    for line in lines:
        now = number(line, "wall_s") or before
        levels = {name: number(line, "levels", name, "mean") for name in table(line, "levels")}
        if levels:
            seconds += now - before
            for name, level in levels.items():
                total[name] = total.get(name, 0.0) + (level or 0.0) * (now - before)
        before = now
    return {name: integral / seconds for name, integral in total.items()} if seconds else {}


def _lag_origins(lines: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    found: dict[str, dict[str, float]] = {}
    for line in lines:
        for origin in table(line, "lag", "by_origin"):
            found[origin] = sum_numbers((found.get(origin, {}), numbers(line, "lag", "by_origin", origin)))
    return {origin: mean for origin, counts in found.items() if (mean := _lag_mean(counts)) is not None}


def _rerolled(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    return [numbers(line, "rollouts", "rerolled") for line in lines]


def _last(lines: Sequence[Mapping[str, Any]], key: str) -> int | None:
    value = number(lines[-1], key) if lines else None
    return None if value is None else int(value)


def _lost(discarded: Mapping[str, float], candidates: int) -> dict[str, float]:
    """Shares of all groups that came to an end. Groups not selected were candidates and were not lost."""
    lost = {reason: n for reason, n in discarded.items() if reason != "not_selected"}
    total = candidates + sum(lost.values())
    return {reason: n / total for reason, n in lost.items()} if total else {}


def _lag_max(lines: Sequence[Mapping[str, Any]]) -> int | None:
    return max((int(lag) for line in lines if (lag := number(line, "lag", "max")) is not None), default=None)


def _lag_mean(histogram: Mapping[str, float]) -> float | None:
    total = sum(histogram.values())
    return sum(int(lag) * n for lag, n in histogram.items()) / total if total else None


def _mean(lines: Sequence[Mapping[str, Any]], *path: str) -> float | None:
    values = [value for line in lines if (value := number(line, *path)) is not None]
    return statistics.fmean(values) if values else None


def _means(lines: Sequence[Mapping[str, Any]], *path: str) -> dict[str, float]:
    names = dict.fromkeys(name for line in lines for name in table(line, *path))
    return {name: value for name in names if (value := _mean(lines, *path, name)) is not None}


def _sum(lines: Sequence[Mapping[str, Any]], *path: str) -> float | None:
    values = [value for line in lines if (value := number(line, *path)) is not None]
    return math.fsum(values) if values else None


def _alarm(event: Mapping[str, Any]) -> RaisedAlarm:
    return RaisedAlarm(
        name=str(event.get("name")),
        step=int(number(event, "step") or 0),
        value=number(event, "value"),
        limit=number(event, "limit"),
        advice=str(event.get("advice") or ""),
    )


def _trouble(events: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for event in events:
        kind = event.get("type")
        if isinstance(kind, str) and kind in _TROUBLE and (kind != "judge" or event.get("problem")):
            found[kind] = found.get(kind, 0) + 1
    return dict(sorted(found.items()))


def _end(events: Sequence[Mapping[str, Any]], *, begun: bool) -> tuple[str, bool]:
    """How the newest of the run's processes ended, and whether every update was trained."""
    for event in reversed(events):
        match event.get("type"):
            case "finished":
                complete = event.get("complete") is True
                return ("complete" if complete else f"stopped: {event.get('reason')}"), complete
            case "failing":
                return f"failed: {event.get('role')} ended", False
            case "killed":
                return "killed", False
            case "learner_ready":
                break
    return f"not finished: {'it is running, or was killed' if begun else 'it has not begun to train'}", False
