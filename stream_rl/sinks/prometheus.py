"""Prometheus: the text of `/metrics`, and a file of the same for node_exporter's textfile collector.

The format is version 0.0.4 of Prometheus' text exposition: `# HELP`, `# TYPE`, then the samples of one family
together. Everything is a gauge: the run as it stands, and the newest update. What was not measured has no sample.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from stream_rl.observe.records import number, table
from stream_rl.sinks.points import leaves
from stream_rl.sinks.port import Point, RunFacts

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
FILE = "metrics.prom"

_PREFIX = "stream_rl"
_NOT_ALLOWED = re.compile(r"[^a-zA-Z0-9_]")
_LABEL = "*"  # begins a part of a path that becomes a label
_NO_FAMILY = frozenset({"step", "version", "wall_s", "train_s", "async_depth"})  # of a line: told by the status, too

# Parts of a metrics line that are one family with labels, and its name. The first that fits is taken.
_DIMENSIONS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("success", "by_env", "*environment"), "success_by_env"),
    (("by_env", "*environment"), "by_env"),  # what follows in the path is added to the name
    (("groups", "discarded", "*reason"), "groups_discarded"),
    (("rollouts", "*fate", "*reason"), "rollouts"),
    (("lag", "histogram", "*lag"), "lag_groups"),
    (("lag", "by_origin", "*origin", "*lag"), "lag_by_origin_groups"),
    (("cost", "device_s", "*role"), "device_seconds"),
    (("cost", "cpu_s", "*role"), "cpu_seconds"),
    (("levels", "*level"), "levels"),
    (("slots", "*role", "*state"), "slot_seconds"),
    (("mismatch", "kl_by_lag", "*lag"), "mismatch_kl_by_lag"),
    (("learner", "*part"), "learner_seconds"),
    (("learner_other", "*part"), "learner_other_seconds"),
    (("roles", "*role", "*state"), "role_seconds"),
    (("tokens", "*kind"), "tokens"),
)
_ENDPOINT = ("in_flight", "limit", "p50_s", "p95_s", "error_share", "abstain_share", "price")


class Family(msgspec.Struct, kw_only=True):
    """Samples of one name."""

    help: str  # one line
    samples: dict[tuple[tuple[str, str], ...], float] = {}  # labels -> value


def prometheus_text(status: Mapping[str, Any] | None, line: Mapping[str, Any] | None) -> str:
    """The exposition of a run.

    status: the orchestrator's answer to `stream-rl status`; None or empty: nobody answers
    line: the newest line of metrics.jsonl; None or empty: no update is trained yet
    """
    families: dict[str, Family] = {}
    for name, help_, labels, value in (*_of_running(status), *_of_status(status or {}), *_of_line(line or {})):
        families.setdefault(name, Family(help=help_)).samples[tuple(labels.items())] = value
    return "".join(_rendered(name, family) for name, family in families.items())


class PrometheusSink:
    """`runs/NAME/metrics.prom`, written anew for each point. A reader never sees half of it."""

    def __init__(self, facts: RunFacts) -> None:
        """Nothing is written before the first point."""
        self._path = facts.folder / FILE
        self._status: dict[str, Any] = {"run": facts.name}
        self._line: Mapping[str, Any] = {}

    def write(self, point: Point) -> None:
        """The newest update and the newest evaluation."""
        if point.held_out:
            self._status["eval"] = point.record
        else:
            self._line = point.record
            self._status |= {key: point.record.get(key) for key in ("version", "wall_s", "train_s", "async_depth")}
        partial = self._path.with_suffix(".partial")
        partial.write_text(prometheus_text(self._status, self._line), encoding="utf-8")
        os.replace(partial, self._path)

    def close(self) -> None:
        """The last numbers stay."""


Sample = tuple[str, str, dict[str, str], float]  # name, help, labels, value


def _of_running(status: Mapping[str, Any] | None) -> Iterator[Sample]:
    if status is None or "permits" in status:  # a status without permits is not an orchestrator's, and says nothing
        yield f"{_PREFIX}_running", "1 while the run's orchestrator answers.", {}, float(status is not None)


def _of_status(status: Mapping[str, Any]) -> Iterator[Sample]:
    info = {key: str(status[key]) for key in ("run", "phase") if isinstance(status.get(key), str)}
    if info:
        yield f"{_PREFIX}_info", "Name of the run and what it is doing.", info, 1.0
    plain = {
        "version": ("version", "Policy version that every generator samples from."),
        "updates": ("updates_planned", "Optimiser updates of the whole run."),
        "async_depth": ("async_depth", "Updates that generation may run ahead."),
        "wall_s": ("wall_seconds", "Seconds since the orchestrator began."),
        "train_s": ("train_seconds", "Seconds of training; evaluation and start-up do not count."),
    }
    for key, (name, help_) in plain.items():
        yield from _one(f"{_PREFIX}_{name}", help_, {}, number(status, key))
    if isinstance(paused := status.get("paused"), bool):
        yield f"{_PREFIX}_paused", "1 while nothing new is leased because somebody paused the run.", {}, float(paused)
    for state in ("taken", "free"):
        permits = number(status, "permits", state)
        yield from _one(f"{_PREFIX}_permits", "Groups that may be under way.", {"state": state}, permits)
    if "permits" in status:  # a running orchestrator's answer; a metrics line has `groups` of another kind
        for path, value in leaves(table(status, "groups")):
            yield f"{_PREFIX}_groups", "Groups under way, by stage.", {"stage": path[0]}, value
    yield from _of_roles(status)
    evaluated = table(status, "eval")
    for path, value in leaves(table(evaluated, "success")):
        world = path[-1]
        yield f"{_PREFIX}_eval_success", "Held-out success, the newest evaluation.", {"environment": world}, value
    stderr = number(evaluated, "stderr")
    yield from _one(f"{_PREFIX}_eval_success_stderr", "Standard error of overall held-out success.", {}, stderr)
    version = number(evaluated, "version")
    yield from _one(f"{_PREFIX}_eval_version", "Version of the newest evaluation.", {}, version)


def _of_roles(status: Mapping[str, Any]) -> Iterator[Sample]:
    for producer in _tables(status.get("producers")):
        labels = {"producer": str(producer.get("name"))}
        for key in ("version", "rollouts", "capacity"):
            value = number(producer, key)
            yield from _one(f"{_PREFIX}_producer_{key}", f"`{key}` of a producer.", labels, value)
    learner = table(status, "learner")
    if isinstance(waiting := learner.get("waiting"), bool):
        yield f"{_PREFIX}_learner_waiting", "1 while the learner waits for groups.", {}, float(waiting)
    judge = table(status, "judge")
    waiting = number(judge, "waiting")
    yield from _one(f"{_PREFIX}_judge_waiting", "Transcripts that wait for the judge.", {}, waiting)
    if "problem" in judge:
        yield f"{_PREFIX}_judge_up", "0 while no judge endpoint answers.", {}, float(judge["problem"] is None)
    for endpoint in _tables(judge.get("endpoints")):
        labels = {key: str(endpoint.get(key)) for key in ("url", "model")}
        for key in _ENDPOINT:
            value = number(endpoint, key)
            yield from _one(f"{_PREFIX}_judge_endpoint_{_spelt(key)}", f"`{key}` of an endpoint.", labels, value)


def _of_line(line: Mapping[str, Any]) -> Iterator[Sample]:
    yield from _one(f"{_PREFIX}_update", "Number of the newest update, from 0.", {}, number(line, "step"))
    for path, value in leaves(line):
        if path[0] in _NO_FAMILY:
            continue
        name, source, labels = _family(path)
        help_ = f"`{source}` of the newest update, see docs/metrics.md."
        yield _NOT_ALLOWED.sub("_", f"{_PREFIX}_update_{name}"), help_, labels, value
    if isinstance(alarms := line.get("alarms"), list | tuple):
        yield f"{_PREFIX}_update_alarms", "Alarms raised by the newest update.", {}, float(len(alarms))


def _family(path: Sequence[str]) -> tuple[str, str, dict[str, str]]:
    """Of a number in a metrics line: the family's name, where that is in the line, and the sample's labels."""
    for pattern, name in _DIMENSIONS:
        pairs = list(zip(pattern, path, strict=False))
        if len(path) >= len(pattern) and all(p.startswith(_LABEL) or p == part for p, part in pairs):
            labels = {p.removeprefix(_LABEL): part for p, part in pairs if p.startswith(_LABEL)}
            if name.endswith("_seconds"):
                labels = {label: text.removesuffix("_s") for label, text in labels.items()}
            rest = path[len(pattern) :]
            fixed = [p for p in pattern if not p.startswith(_LABEL)]
            return "_".join((name, *map(_spelt, rest))), ".".join((*fixed, *rest)), labels
    return "_".join(map(_spelt, path)), ".".join(path), {}


def _spelt(name: str) -> str:
    """Units in full, as Prometheus has them."""
    return f"{name[:-2]}_seconds" if name.endswith("_s") else name


def _one(name: str, help_: str, labels: dict[str, str], value: float | None) -> Iterator[Sample]:
    if value is not None:
        yield name, help_, labels, value


def _tables(values: object) -> list[Mapping[str, Any]]:
    return [v for v in values if isinstance(v, Mapping)] if isinstance(values, list | tuple) else []


def _rendered(name: str, family: Family) -> str:
    lines = [f"# HELP {name} {_escaped(family.help)}", f"# TYPE {name} gauge"]
    for labels, value in family.samples.items():
        inside = ",".join(f'{_NOT_ALLOWED.sub("_", key)}="{_quoted(text)}"' for key, text in labels)
        lines.append(f"{name}{{{inside}}} {value!r}" if inside else f"{name} {value!r}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', r"\"")
