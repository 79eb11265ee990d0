"""A run's report: a page of text, the same as JSON, and a picture."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from stream_rl.observe.plots import learning_curve
from stream_rl.observe.progress import Estimate
from stream_rl.observe.records import shares
from stream_rl.observe.rundir import RunDirectory, read_json_lines
from stream_rl.observe.status import render_status
from stream_rl.observe.summary import Summary, summarise
from stream_rl.observe.words import alarm, counts, show

__all__ = [
    "read_summary",
    "render_markdown",
    "render_status",
    "render_text",
    "report_json",
    "to_json",
    "write_report",
]

Section = tuple[str, list[str]]


def read_summary(run: RunDirectory) -> Summary:
    """The summary of a run, finished or not."""
    return summarise(
        run.root.name,
        metrics=read_json_lines(run.metrics),
        evals=read_json_lines(run.eval),
        events=read_json_lines(run.events),
    )


def to_json(summary: Summary) -> str:
    """One JSON object with the fields of `Summary`."""
    return msgspec.json.format(msgspec.json.encode(summary), indent=2).decode()


def render_text(summary: Summary) -> str:
    """For a terminal: titles, and one indented line a fact."""
    return "\n".join(line for title, facts in _sections(summary) for line in (title, *(f"  {fact}" for fact in facts)))


def render_markdown(summary: Summary, *, picture: str) -> str:
    """The same as a page with the picture `picture` (a relative path)."""
    (title, facts), *rest = _sections(summary)
    page = [f"# {title}", "", *(f"- {fact}" for fact in facts), "", f"![learning curve]({picture})"]
    for title, facts in rest:
        page += ["", f"## {title[0].upper()}{title[1:]}", "", *(f"- {fact}" for fact in facts)]
    return "\n".join(page) + "\n"


def report_json(run: RunDirectory) -> dict[str, Any]:
    """The run's summary as plain data; writes nothing."""
    return dict(json.loads(to_json(read_summary(run))))


def write_report(run: RunDirectory) -> str:
    """Write `report/report.md`, `report/report.json` and the picture; returns the text for a terminal."""
    picture = learning_curve(run)
    summary = read_summary(run)
    (run.report / "report.json").write_text(to_json(summary) + "\n", encoding="utf-8")
    page = run.report / "report.md"
    page.write_text(render_markdown(summary, picture=picture.name), encoding="utf-8")
    return f"{render_text(summary)}\nreport: {page}, {picture}"


def _sections(s: Summary) -> Iterator[Section]:
    """Title and facts of each part that has something to say; the first one always has."""
    yield (
        f"run {s.run}: {s.end}",
        [
            f"{s.updates} updates in {s.train_s:.0f} training seconds ({s.wall_s:.0f} s in all, "
            f"{s.evaluation_s:.0f} s evaluating, {s.startup_s:.0f} s waiting for producers to start)"
        ],
    )
    if s.start and s.final and s.best:
        reached = [
            f"{float(threshold):.0%} {'was not reached' if seconds is None else f'after {seconds:.0f} s'}"
            for threshold, seconds in s.seconds_to.items()
        ]
        change = [f"gain {_interval(s.gain, signed=True)}"] if s.gain else []
        yield (
            "held-out success (95 % interval)",
            [
                f"start {_interval(s.start)}, end {_interval(s.final)}",
                *change,
                f"best {s.best.success:.3f} at version {s.best.version}, {s.best.train_s:.0f} s",
                ", ".join(reached),
            ],
        )
    if s.update_s is not None:
        seconds = ", ".join(f"{part.replace('_', ' ')} {v:.2f} s" for part, v in s.learner_s.items() if v >= 0.005)
        yield (
            "where the time went",
            [
                f"learner: {_percentages(s.learner)}",
                f"an update took {s.update_s:.2f} s: {seconds}",
                *(f"{name}: {_percentages(states)}" for name, states in s.roles.items()),
                *_weight_updates(s),
            ],
        )
    if s.updates:
        yield "what was used", list(_usage(s))
    if s.trouble:
        yield "trouble", [counts(s.trouble)]
    if s.alarms:
        yield "alarms", [alarm(msgspec.to_builtins(raised)) for raised in s.alarms]
    if s.advice:
        yield "advice", list(s.advice)


def _usage(s: Summary) -> Iterator[str]:
    yield "tokens: " + ", ".join(f"{name} {n:,}" for name, n in s.tokens.items())
    yield f"{show(s.generated_per_s, '.0f')} tokens generated in a training second"
    lost = f", of all groups: {counts(s.discarded)}" if s.discarded else ""
    yield f"groups: {s.groups['candidate']} candidates, {s.groups['selected']} trained{lost}"
    yield (
        f"groups without a difference to learn from: {show(s.all_pass, '.0%')} all passed, "
        f"{show(s.all_fail, '.0%')} all failed"
    )
    lags = ", ".join(f"{lag}: {share:.0%}" for lag, share in shares(s.lag_histogram).items())
    yield f"lag in updates: at most {show(s.lag_max)}, {show(s.lag_mean, '.2f')} on average ({lags or 'no group'})"


def _weight_updates(s: Summary) -> Iterator[str]:
    pause, load = s.weight_updates_s.get("pause_s"), s.weight_updates_s.get("load_s")
    if pause is not None and load is not None:
        yield f"generators were paused {pause:.1f} s in all for new weights, {load:.1f} s of it loading"


def _percentages(parts: Mapping[str, float]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {share:.1%}" for name, share in parts.items() if share >= 0.0005)


def _interval(e: Estimate, *, signed: bool = False) -> str:
    spec = "+.3f" if signed else ".3f"
    return f"{e.value:{spec}} ({e.low:{spec}} to {e.high:{spec}})"
