"""Runs side by side: seeds of one setting are one group, with intervals over seeds and what each group cost. Pure."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from stream_rl.observe.intervals import difference, mean_of, paired_difference
from stream_rl.observe.progress import Estimate, evaluations, rate
from stream_rl.observe.records import number, numbers, sum_numbers
from stream_rl.observe.summary import Summary, ordered

# Top-level keys that may differ between runs of one group: chance, and how a run is watched.
_FREE = frozenset({"seed", "port", "page", "alarms", "stall_s", "simulate", "sinks"})
_LABEL_CELLS = 60  # a longer one is replaced by a name; the setting has all of it


class CurvePoint(msgspec.Struct, frozen=True, kw_only=True):
    """One held-out evaluation of one run."""

    version: int  # of the policy
    train_s: float  # training seconds until then
    generated_tokens: float  # sampled for training until then
    success: float  # held-out


class Contender(msgspec.Struct, frozen=True, kw_only=True):
    """One run, as far as it is compared."""

    name: str  # of its folder
    seed: int  # as configured
    config: Mapping[str, Any]  # resolved, as plain values
    summary: Summary  # of the report
    device_s: Mapping[str, float]  # role -> seconds that it held its devices; empty where that was not counted
    curve: tuple[CurvePoint, ...]  # by version


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One column of one group."""

    mean: float  # over the runs that have it
    interval: Estimate | None  # 95 % over seeds; None for fewer than two
    values: tuple[float | None, ...]  # run by run; None: not measured there


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Runs of one setting."""

    label: str  # what sets it apart from the other groups; "all" where there is one group
    setting: dict[str, Any]  # configuration keys that differ between groups, with this group's values
    runs: tuple[str, ...]  # names
    seeds: tuple[int, ...]  # theirs
    updates: tuple[int, ...]  # trained by each
    complete: bool  # every run trained all its updates
    cells: dict[str, Cell]  # name of `COLUMNS` -> numbers; what no run measured is missing
    device_s: dict[str, float]  # role -> mean device-seconds of a run
    learner_s: dict[str, float]  # mean training seconds of an update by part


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Final held-out success of a group against the first group's."""

    group: str  # its label
    against: str  # the first group's
    change: Estimate | None  # None: fewer than two runs on one side
    paired: bool  # seed by seed


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The whole table."""

    groups: tuple[Group, ...]  # in the order their first run was given
    changes: tuple[Change, ...]  # of every group but the first


# Column -> unit and meaning.
COLUMNS: Mapping[str, str] = {
    "start": "held-out success of the start policy",
    "final": "held-out success of the last evaluation",
    "gain": "final - start",
    "best": "held-out success of the best evaluation (chosen on the tasks it is measured on: biased upwards)",
    "seconds_to_0.5": "training seconds until held-out success was 0.5",
    "seconds_to_0.6": "training seconds until held-out success was 0.6",
    "train_s": "training seconds; evaluation and start-up do not count",
    "update_s": "mean training seconds of an update",
    "rollout_wait": "share of the training time in which the learner waited for rollouts",
    "lag_mean": "mean lag of a trained group, in updates",
    "tokens_generated": "sampled by training rollouts",
    "tokens_trained": "loss tokens",
    "tokens_discarded": "generated for groups that were never trained",
    "tokens_judge": "prompt and completion tokens of the judge",
    "tokens_teacher": "tokens a teacher pass scored",
    "judge_price": "of the judge's tokens, as configured",
    "device_s": "seconds that all roles together held their devices, used or not",
}


def contender(
    name: str,
    config: Mapping[str, Any],
    summary: Summary,
    metrics: Iterable[Mapping[str, Any]],
    evals: Iterable[Mapping[str, Any]],
) -> Contender:
    """One run from its resolved configuration, its summary and its records."""
    lines = ordered(metrics)
    return Contender(
        name=name,
        seed=int(number(config, "seed") or 0),
        config=config,
        summary=summary,
        device_s=sum_numbers(numbers(line, "cost", "device_s") for line in lines),
        curve=tuple(_curve(lines, evals)),
    )


def compare(runs: Sequence[Contender]) -> Comparison:
    """Group and compare. Groups stand in the order in which their first run was given."""
    sets: dict[bytes, list[Contender]] = {}
    for run in runs:
        sets.setdefault(_key(run.config), []).append(run)
    flat = [_flat(members[0].config) for members in sets.values()]
    names = sorted({key for one in flat for key in one})
    differing = [key for key in names if any(one.get(key) != flat[0].get(key) for one in flat)]
    settings = [{key: one.get(key) for key in differing} for one in flat]
    members = list(sets.values())
    labels = _labels(members, settings)
    groups = [_group(*parts) for parts in zip(members, settings, labels, strict=True)]
    return Comparison(
        groups=tuple(groups),
        changes=tuple(
            _change(groups[0], group, members[0], own) for group, own in zip(groups[1:], members[1:], strict=True)
        ),
    )


def mean_curve(runs: Sequence[Contender]) -> list[tuple[CurvePoint, Estimate | None]]:
    """The mean of several curves at the versions that all of them were evaluated at, with its interval."""
    by_version = [{point.version: point for point in run.curve} for run in runs]
    shared = sorted(set.intersection(*map(set, by_version))) if by_version else []
    out = []
    for version in shared:
        points = [points[version] for points in by_version]
        mean = CurvePoint(
            version=version,
            train_s=statistics.fmean(p.train_s for p in points),
            generated_tokens=statistics.fmean(p.generated_tokens for p in points),
            success=statistics.fmean(p.success for p in points),
        )
        out.append((mean, mean_of([p.success for p in points])))
    return out


def members_of(group: Group, runs: Sequence[Contender]) -> list[Contender]:
    """The runs of a group, of all that were compared."""
    return [run for run in runs if run.name in group.runs]


def _group(members: Sequence[Contender], setting: dict[str, Any], label: str) -> Group:
    columns = [_columns(run) for run in members]
    cells = {name: cell for name in COLUMNS if (cell := _cell(name, columns, members)) is not None}
    roles = dict.fromkeys(role for run in members for role in run.device_s)
    parts = dict.fromkeys(part for run in members for part in run.summary.learner_s)
    return Group(
        label=label,
        setting=setting,
        runs=tuple(run.name for run in members),
        seeds=tuple(run.seed for run in members),
        updates=tuple(run.summary.updates for run in members),
        complete=all(run.summary.complete for run in members),
        cells=cells,
        device_s={role: statistics.fmean(run.device_s.get(role, 0.0) for run in members) for role in roles},
        learner_s={part: statistics.fmean(run.summary.learner_s.get(part, 0.0) for run in members) for part in parts},
    )


def _labels(sets: Sequence[Sequence[Contender]], settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The settings in words; where one is too long, what the names of a group's runs have in common, or a name."""
    words = [", ".join(f"{key} = {plain(value)}" for key, value in one.items()) or "all" for one in settings]
    if max(map(len, words)) <= _LABEL_CELLS:
        return words
    names = [_common([run.name for run in members]) for members in sets]
    count = Counter(names)
    return [n if count[n] == 1 else members[0].name for n, members in zip(names, sets, strict=True)]


def _common(names: Sequence[str]) -> str:
    """What names begin with, without the number of a seed: "grpo" of "grpo-0" and "grpo-1"."""
    same = itertools.takewhile(lambda characters: len(set(characters)) == 1, zip(*names, strict=False))
    common = "".join(characters[0] for characters in same).rstrip("-_.0123456789")
    return common if common and len(names) > 1 else names[0]


def _columns(run: Contender) -> dict[str, float | None]:
    s = run.summary
    return {
        "start": s.start.value if s.start else None,
        "final": s.final.value if s.final else None,
        "gain": s.gain.value if s.gain else None,
        "best": s.best.success if s.best else None,
        **{f"seconds_to_{threshold}": seconds for threshold, seconds in s.seconds_to.items()},
        "train_s": s.train_s,
        "update_s": s.update_s,
        "rollout_wait": s.learner.get("rollout_wait"),
        "lag_mean": s.lag_mean,
        **{f"tokens_{kind}": float(n) for kind, n in s.tokens.items()},
        "judge_price": s.judge_price,
        "device_s": sum(run.device_s.values()) if run.device_s else None,
    }


def _cell(name: str, columns: Sequence[Mapping[str, float | None]], members: Sequence[Contender]) -> Cell | None:
    values = tuple(column.get(name) for column in columns)
    known = [value for value in values if value is not None]
    if not known:
        return None
    interval = mean_of(known)
    if name == "final" and len(members) == 1 and members[0].summary.final:
        interval = members[0].summary.final  # of one run: over its tasks, which says nothing about other seeds
    return Cell(mean=statistics.fmean(known), interval=interval, values=values)


def _change(base: Group, group: Group, first: Sequence[Contender], second: Sequence[Contender]) -> Change:
    ends = [{run.seed: run.summary.final.value for run in runs if run.summary.final} for runs in (first, second)]
    unique = len(ends[0]) == len(first) and len(ends[1]) == len(second)
    paired = unique and set(ends[0]) == set(ends[1])
    if paired:
        seeds = sorted(ends[0])
        change = paired_difference([ends[0][s] for s in seeds], [ends[1][s] for s in seeds])
    else:
        values = [[run.summary.final.value for run in runs if run.summary.final] for runs in (first, second)]
        change = difference(values[0], values[1])
    return Change(group=group.label, against=base.label, change=change, paired=paired)


def _curve(lines: Sequence[Mapping[str, Any]], evals: Iterable[Mapping[str, Any]]) -> Iterable[CurvePoint]:
    for point in evaluations(evals):
        before = (number(line, "tokens", "generated") or 0.0 for line in lines if line["version"] <= point.version)
        yield CurvePoint(
            version=point.version, train_s=point.train_s, generated_tokens=sum(before), success=rate(point).value
        )


def _key(config: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode({key: value for key, value in config.items() if key not in _FREE}, order="deterministic")


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in config.items():
        if not prefix and key in _FREE:
            continue
        if isinstance(value, Mapping):
            out |= _flat(value, f"{prefix}{key}.")
        else:
            out[f"{prefix}{key}"] = value
    return out


def plain(value: object) -> str:
    """A value of the configuration as text; what a group's configuration does not have is the default."""
    return "default" if value is None else value if isinstance(value, str) else msgspec.json.encode(value).decode()
