"""A run's report: one HTML file with its drawings, the same as text and as JSON, and pictures."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from stream_rl.errors import UsageError
from stream_rl.observe.bars import cost_chart, discards_chart, lag_chart, roles_chart
from stream_rl.observe.document import render_html
from stream_rl.observe.judging import JudgingFacts, draw_rates, judging_facts, judging_lines
from stream_rl.observe.plots import health_chart, learning_curve, levels_chart, success_chart, time_chart
from stream_rl.observe.progress import Estimate
from stream_rl.observe.records import shares
from stream_rl.observe.rundir import RunDirectory, read_json_lines
from stream_rl.observe.status import render_status
from stream_rl.observe.summary import Summary, ordered, summarise
from stream_rl.observe.switches import MAIN
from stream_rl.observe.theme import styled, to_svg, write_png
from stream_rl.observe.words import alarm, alignment, counts, fields, show

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
_JUDGE = "judge"  # title of the judge's section


def read_summary(run: RunDirectory) -> Summary:
    """The summary of a run, finished or not. Raises `UsageError` when its config.toml is not TOML."""
    return summarise(
        run.root.name,
        config=_config(run),
        metrics=read_json_lines(run.metrics),
        evals=read_json_lines(run.eval),
        events=read_json_lines(run.events),
    )


def to_json(summary: Summary) -> str:
    """One JSON object with the fields of `Summary`."""
    return msgspec.json.format(msgspec.json.encode(summary), indent=2).decode()


def render_text(summary: Summary, judging: JudgingFacts | None = None) -> str:
    """For a terminal: titles, and one indented line a fact."""
    sections = _sections(summary, judging)
    return "\n".join(line for title, facts in sections for line in (title, *(f"  {fact}" for fact in facts)))


def render_markdown(summary: Summary, judging: JudgingFacts | None = None, *, picture: str, rates: str = "") -> str:
    """The same as a page with the learning curve `picture` and the judge's tag rates `rates` (relative paths)."""
    (title, facts), *rest = _sections(summary, judging)
    page = [f"# {title}", "", *(f"- {fact}" for fact in facts), "", f"![learning curve]({picture})"]
    for title, facts in rest:
        page += ["", f"## {title[0].upper()}{title[1:]}", "", *(f"- {fact}" for fact in facts)]
        if title == _JUDGE and rates:
            page += ["", f"![tag rates]({rates})"]
    return "\n".join(page) + "\n"


def report_json(run: RunDirectory) -> dict[str, Any]:
    """The run's summary as plain data, and under "judge" what its judge said (null without one); writes nothing."""
    return _plain(read_summary(run), judging_facts(run))


def write_report(run: RunDirectory) -> str:
    """Write `report/report.html`, the same as `.md` and `.json`, and the pictures; returns the text for a terminal."""
    picture = learning_curve(run)
    summary, judging = read_summary(run), judging_facts(run)
    tagged = judging is not None and judging.verdicts > 0
    pictures = [picture, draw_rates(judging, run.report / "tag_rates.png")] if judging and tagged else [picture]
    (run.report / "report.json").write_text(json.dumps(_plain(summary, judging), indent=2) + "\n", encoding="utf-8")
    page = run.report / "report.md"
    rates = pictures[-1].name if tagged else ""
    page.write_text(render_markdown(summary, judging, picture=picture.name, rates=rates), encoding="utf-8")
    html = run.report / "report.html"
    html.write_text(render_html(summary, judging, _drawings(run, summary)), encoding="utf-8")
    return f"{render_text(summary, judging)}\nreport: {', '.join(map(str, [html, page, *pictures]))}"


def _drawings(run: RunDirectory, summary: Summary) -> dict[str, str]:
    """Every chart that has something to show, as an `<svg>` element by name; each is a PNG in the folder, too."""
    lines, evals = ordered(read_json_lines(run.metrics)), list(read_json_lines(run.eval))
    if not lines:
        return {}
    charts: dict[str, tuple[str, Callable[[], Any]]] = {
        "success": ("success and reward", partial(success_chart, lines, evals)),
        "time": ("seconds of the learner for each update", partial(time_chart, lines)),
        "roles": ("share of its time by state for each role", partial(roles_chart, summary)),
        "lag": ("lag of trained groups and where it arose", partial(lag_chart, summary)),
        "health": ("staleness, entropy and drift for each update", partial(health_chart, lines)),
        "levels": ("groups in flight and queues for each update", partial(levels_chart, lines)),
        "cost": ("tokens and device-seconds", partial(cost_chart, summary)),
        "discarded": ("groups and rollouts by what became of them", partial(discards_chart, summary)),
    }
    out = {}
    for name, (title, chart) in charts.items():
        with styled():
            if (figure := chart()) is not None:
                write_png(figure, run.report / f"{name}.png")
                out[name] = to_svg(figure, title)
    return out


def _plain(summary: Summary, judging: JudgingFacts | None) -> dict[str, Any]:
    return {**json.loads(to_json(summary)), "judge": json.loads(msgspec.json.encode(judging))}


def _config(run: RunDirectory) -> dict[str, Any]:
    """As plain values: a run of another version may hold options this one would refuse."""
    try:
        return tomllib.loads(run.config.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{run.config} is not valid TOML ({error}); restore it from the file the run began with"
        ) from None


def _sections(s: Summary, judging: JudgingFacts | None) -> Iterator[Section]:
    """Title and facts of each part that has something to say; the first one always has."""
    yield (
        f"run {s.run}: {s.end}",
        [
            f"{s.updates} updates in {s.train_s:.0f} training seconds ({s.wall_s:.0f} s in all, "
            f"{s.evaluation_s:.0f} s evaluating, {s.startup_s:.0f} s waiting for producers to start"
            f"{f', {s.paused_s:.0f} s paused' if s.paused_s >= 0.5 else ''})"
        ],
    )
    if s.switches:
        yield "switches", list(_switches(s))
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
                *([f"the orchestrator's event loop was {s.loop_lag_s:.3f} s late at worst"] if s.loop_lag_s else []),
            ],
        )
    if s.updates:
        yield "what was used", list(_usage(s))
    if s.orsd:
        yield "written rubrics", alignment(s.orsd)
    if judging:
        yield _JUDGE, judging_lines(judging)
    if s.trouble:
        yield "trouble", [counts(s.trouble)]
    if s.alarms:
        yield "alarms", [alarm(msgspec.to_builtins(raised)) for raised in s.alarms]
    if s.advice:
        yield "advice", list(s.advice)


def _switches(s: Summary) -> Iterator[str]:
    yield fields({name: s.switches[name] for name in MAIN})
    others = fields({name: value for name, value in s.switches.items() if name not in MAIN})
    yield f"other options: {others or 'all at their defaults'}"


def _usage(s: Summary) -> Iterator[str]:
    parts = {"judge_prompt", "judge_completion"}
    yield "tokens: " + ", ".join(f"{name} {n:,}" for name, n in s.tokens.items() if name not in parts)
    if s.tokens["judge"]:
        prompt, completion = (show(s.tokens.get(f"judge_{part}"), ",") for part in ("prompt", "completion"))
        yield f"judge: {prompt} prompt and {completion} completion tokens, price {show(s.judge_price, '.4g')}"
    yield f"{show(s.generated_per_s, '.0f')} tokens generated in a training second"
    if s.device_s:
        devices = ", ".join(f"{name} {seconds:,.0f} s" for name, seconds in s.device_s.items() if seconds)
        yield f"devices, used or not: {devices}"
    if s.cpu_s:
        yield f"CPU seconds used: {', '.join(f'{name} {seconds:,.0f} s' for name, seconds in s.cpu_s.items())}"
    lost = f", of all groups: {counts(s.discarded)}" if s.discarded else ""
    yield f"groups: {s.groups['candidate']} candidates, {s.groups['selected']} trained{lost}"
    rollouts = [f"discarded: {counts(s.discarded_rollouts)}"] if s.discarded_rollouts else []
    rollouts += [f"{s.failed_rollouts} failed"] if s.failed_rollouts is not None else []
    if rollouts:
        yield f"rollouts {'; '.join(rollouts)}"
    yield (
        f"groups without a difference to learn from: {show(s.all_pass, '.0%')} all passed, "
        f"{show(s.all_fail, '.0%')} all failed"
    )
    lags = ", ".join(f"{lag}: {share:.0%}" for lag, share in shares(s.lag_histogram).items())
    yield f"lag in updates: at most {show(s.lag_max)}, {show(s.lag_mean, '.2f')} on average ({lags or 'no group'})"
    if any(s.lag_origins.values()):
        arose = ", ".join(f"{origin} {mean:.2f}" for origin, mean in s.lag_origins.items() if mean)
        yield f"where it arose, updates of a group in the mean: {arose}"


def _weight_updates(s: Summary) -> Iterator[str]:
    pause, load = s.weight_updates_s.get("pause_s"), s.weight_updates_s.get("load_s")
    if pause is not None and load is not None:
        yield f"generators were paused {pause:.1f} s in all for new weights, {load:.1f} s of it loading"


def _percentages(parts: Mapping[str, float]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {share:.1%}" for name, share in parts.items() if share >= 0.0005)


def _interval(e: Estimate, *, signed: bool = False) -> str:
    spec = "+.3f" if signed else ".3f"
    return f"{e.value:{spec}} ({e.low:{spec}} to {e.high:{spec}})"
