"""The report as one HTML file: style, drawings and numbers are all inside it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from html import escape
from importlib.resources import files

import msgspec

from stream_rl.observe.judging import JudgingFacts, TagShares, judging_lines
from stream_rl.observe.summary import Summary
from stream_rl.observe.theme import DARK, LIGHT
from stream_rl.observe.words import alarm, alignment, counts, fields, show

_REASONS = {
    "not_selected": "candidates that selection left out; they cost what trained ones cost",
    "too_few_valid": "too few of their rollouts ended in order",
    "stale": "their oldest token was older than max_lag when they closed",
    "past_the_end": "the run was made shorter after they were leased",
}
_TAGS = ("positive", "violation", "not_applicable")


def render_html(s: Summary, judging: JudgingFacts | None, drawings: Mapping[str, str]) -> str:
    """A page that needs nothing beside itself, for light and dark screens.

    drawings: name -> `<svg>` element, of `success`, `time`, `roles`, `lag`, `health`, `levels`, `cost`, `discarded`;
    one that is missing is left out
    """
    body = "\n".join((_head(s), _tiles(s), _advice(s), *_sections(s, judging, drawings)))
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(s.run)}: report</title>\n<style>\n{_style()}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


@cache
def _style() -> str:
    text = files("stream_rl.observe").joinpath("assets/report.css").read_text(encoding="utf-8")
    for name, colours in (("COLOURS_LIGHT", LIGHT), ("COLOURS_DARK", DARK)):
        text = text.replace(name, "; ".join(f"--{colour}: {value}" for colour, value in colours.items()))
    return text


def _head(s: Summary) -> str:
    times = f"{s.updates} updates in {s.train_s:,.0f} training seconds, {s.wall_s:,.0f} s in all"
    besides = ((s.evaluation_s, "evaluating"), (s.startup_s, "starting"), (s.paused_s, "paused"))
    others = ", ".join(f"{seconds:,.0f} s {what}" for seconds, what in besides if seconds >= 0.5)
    main = f"<p>{escape(fields(s.switches))}</p>" if s.switches else ""
    title = f"<h1>{escape(s.run)}: {escape(s.end)}</h1>"
    return f"<header>{title}\n<p>{times}{f' ({others})' if others else ''}</p>{main}</header>"


def _tiles(s: Summary) -> str:
    tiles = []
    if s.start and s.final:
        interval = f"{s.final.low:.3f} to {s.final.high:.3f}; began at {s.start.value:.3f}"
        tiles.append(("held-out success", f"{s.final.value:.3f}", interval))
    if s.gain:
        tiles.append(("gain", f"{s.gain.value:+.3f}", f"{s.gain.low:+.3f} to {s.gain.high:+.3f}"))
    if s.update_s is not None:
        tiles.append(
            ("an update", f"{s.update_s:.2f} s", f"{show(s.generated_per_s, ',.0f')} tokens generated a second")
        )
    if s.learner:
        tiles.append(
            ("learner waited", f"{s.learner['rollout_wait']:.0%}", f"{s.learner['judge_wait']:.1%} for verdicts")
        )
    if s.lag_max is not None:
        tiles.append(("lag, updates", show(s.lag_mean, ".2f"), f"at most {s.lag_max}"))
    if generated := s.tokens["generated"]:
        share = s.tokens["trained"] / generated
        tiles.append(("tokens generated", _short(generated), f"{share:.0%} of them trained"))
    if s.device_s:
        tiles.append(("device-seconds", _short(sum(s.device_s.values())), "all roles, used or not"))
    if s.judge_price:
        tiles.append(("judge", f"{s.judge_price:,.4g}", f"for {_short(s.tokens['judge'])} tokens"))
    return "<dl>" + "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(note)}</small></dd></div>"
        for name, value, note in tiles
    ) + "</dl>"  # fmt: skip


def _advice(s: Summary) -> str:
    if not s.updates:
        return ""
    points = [*s.advice, *(alarm(msgspec.to_builtins(raised)) for raised in s.alarms)]
    if not points:
        return _section("What to change", "<p>No limit was passed: nothing stands out.</p>", "advice none")
    return _section("What to change", _list(points), "advice")


def _sections(s: Summary, judging: JudgingFacts | None, drawings: Mapping[str, str]) -> Iterator[str]:
    def drawn(*names: str) -> str:
        return "\n".join(f'<div class="wide">{drawings[name]}</div>' for name in names if name in drawings)

    if success := drawn("success"):
        yield _section("Success and reward", success + _success(s))
    if s.learner or s.roles:
        yield _section("Where the time went", drawn("roles", "time") + _times(s))
    if s.lag_histogram:
        yield _section("Staleness", drawn("lag", "health"))
    if s.levels:
        yield _section("Queues and permits", drawn("levels") + _details("mean over the run", _pairs(s.levels, ",.2f")))
    if s.updates:
        yield _section("What it cost", drawn("cost") + _costs(s))
        yield _section("What was discarded, and why", drawn("discarded") + _discards(s))
    if s.orsd:
        yield _section("Written rubrics", _list(alignment(s.orsd)))
    if judging:
        yield _section("Judge", _list(judging_lines(judging)) + _rates(judging) + _agreement(judging))
    if s.trouble:
        yield _section("Trouble", _list([counts(s.trouble)]))


def _success(s: Summary) -> str:
    reached = [
        f"{float(threshold):.0%} {'was not reached' if seconds is None else f'after {seconds:,.0f} training seconds'}"
        for threshold, seconds in s.seconds_to.items()
    ]
    best = [f"best {s.best.success:.3f} at version {s.best.version}"] if s.best else []
    unlearnt = (
        f"groups without a difference to learn from: {show(s.all_pass, '.0%')} all passed, "
        f"{show(s.all_fail, '.0%')} all failed"
    )
    return _list([", ".join([*best, *reached]), unlearnt] if s.best else [unlearnt])


def _times(s: Summary) -> str:
    roles = {**({"learner": s.learner} if s.learner else {}), **s.roles}
    rows = [[name, ", ".join(f"{state.replace('_', ' ')} {share:.1%}" for state, share in sorted(
        parts.items(), key=lambda part: -part[1]) if share >= 0.0005)] for name, parts in roles.items()]  # fmt: skip
    notes = []
    if "pause_s" in s.weight_updates_s:
        pause, load = s.weight_updates_s["pause_s"], s.weight_updates_s.get("load_s", 0.0)
        notes.append(f"generators were paused {pause:,.1f} s in all for new weights, {load:,.1f} s of it loading")
    if s.loop_lag_s is not None:
        notes.append(f"the orchestrator's event loop was {s.loop_lag_s:.3f} s late at worst")
    return _list(notes) + _details("in numbers", _table(["role", "share of its time by state"], rows))


def _costs(s: Summary) -> str:
    rows = [[name.replace("_", " "), f"{n:,}", _each(n, s.updates)] for name, n in s.tokens.items()]
    tokens = _table(["tokens", "in all", "an update"], rows)
    devices = _table(
        ["seconds of devices", "in all", "an update"],
        [[name, f"{v:,.1f}", _each(v, s.updates)] for name, v in s.device_s.items()],
    )
    notes = []
    if s.cpu_s:
        notes.append(f"CPU seconds used: {', '.join(f'{name} {v:,.1f}' for name, v in s.cpu_s.items())}")
    if s.tokens["judge"]:
        prompt, completion = (show(s.tokens.get(f"judge_{part}"), ",") for part in ("prompt", "completion"))
        notes.append(f"judge: {prompt} prompt and {completion} completion tokens, price {show(s.judge_price, ',.4g')}")
    return _list(notes) + _details("in numbers", tokens + (devices if s.device_s else ""))


def _discards(s: Summary) -> str:
    rows = [
        [reason.replace("_", " "), f"{n:,}", show(s.discarded_rollouts.get(reason), ","), _REASONS.get(reason, "")]
        for reason, n in s.discarded.items()
    ]
    notes = [f"{s.groups['candidate']:,} candidates, {s.groups['selected']:,} of them trained"]
    if s.failed_rollouts is not None:
        notes.append(f"{s.failed_rollouts:,} rollouts failed")
    if s.rerolled:
        notes.append(f"played again: {counts(s.rerolled)}")
    if s.failed_rollouts and "cut" in s.cut and "kept" in s.cut:
        of = "; ".join(
            f"{part}: {', '.join(f'{name} {value:,.2f}' for name, value in s.cut[part].items())}"
            for part in ("kept", "cut")
        )
        notes.append(f"what was cut off against what counts, in the mean: {of}")
    table = _table(["reason", "groups", "rollouts", ""], rows, text=(3,)) if rows else ""
    return _list(notes) + table


def _rates(f: JudgingFacts) -> str:
    """Skills by world; the deeper the colour, the more of the decided tags."""
    worlds = list(f.skills)
    if not worlds:
        return ""
    skills = list(dict.fromkeys(skill for by_world in f.skills.values() for skill in by_world))
    head = "".join(f'<th colspan="3">{escape(world)}</th>' for world in worlds)
    tags = "".join(f"<th>{tag.replace('_', ' ')}</th>" for _ in worlds for tag in _TAGS)
    rows = "".join(
        f"<tr><td>{escape(skill)}</td>{''.join(_cells(f.skills[world].get(skill)) for world in worlds)}</tr>"
        for skill in skills
    )
    return (
        f'<div class="wide"><table><thead><tr><th>share of the decided tags</th>{head}</tr><tr><th></th>{tags}</tr>'
        f"</thead><tbody>{rows}</tbody></table></div>"
    )


def _cells(rates: TagShares | None) -> str:
    out = []
    for tag in _TAGS:
        rate: float | None = None if rates is None else getattr(rates, tag)
        out.append(f'<td class="heat {tag}" style="--heat: {rate or 0.0:.3f}">{show(rate, ".0%")}</td>')
    return "".join(out)


def _agreement(f: JudgingFacts) -> str:
    if f.agreement is None or not f.worst:
        return ""
    rows = [
        [rubric, show(found.kappa, ".2f"), show(found.observed, ".0%"), f"{found.pairs:,}"]
        for rubric in f.worst
        if (found := f.agreement.by_rubric[rubric])
    ]
    return _details("lowest agreement with itself", _table(["rubric", "kappa", "equal", "pairs"], rows))


def _section(title: str, content: str, kind: str = "") -> str:
    attribute = f' class="{kind}"' if kind else ""
    return f"<section{attribute}><h2>{escape(title)}</h2>\n{content}</section>"


def _details(title: str, content: str) -> str:
    return f'<details><summary>{escape(title)}</summary><div class="wide">{content}</div></details>' if content else ""


def _list(points: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(point)}</li>' for point in points)}</ul>" if points else ""


def _pairs(values: Mapping[str, float], spec: str) -> str:
    return _table(["", ""], [[name.replace("_", " "), format(value, spec)] for name, value in values.items()])


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, text: Sequence[int] = ()) -> str:
    heads = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(
        "<tr>"
        + "".join(f"<td{' class=text' if i in text else ''}>{escape(cell)}</td>" for i, cell in enumerate(row))
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def _each(value: float, updates: int) -> str:
    return f"{value / updates:,.1f}" if updates else show(None)


def _short(value: float) -> str:
    """ "242k", "21.1M"."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= 10 * size or (unit != "k" and value >= size):
            return f"{value / size:.3g}{unit}"
    return f"{value:,.0f}"
