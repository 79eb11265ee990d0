"""What the judge said in a run, and how far it can be trusted: coverage, agreement, tag rates, time and price."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from stream_rl.observe.archive import Archive
from stream_rl.observe.records import number
from stream_rl.observe.rundir import RunDirectory, read_json_lines
from stream_rl.observe.summary import ordered
from stream_rl.observe.words import show
from stream_rl.rubrics.agreement import AgreementCounts, AgreementReport
from stream_rl.rubrics.tag_rates import TagCounts, TagRates, by_skill, pooled
from stream_rl.types import TagValue

WORST = 5  # rubrics named for low agreement
_MIN_PAIRS = 20  # of a rubric, before its kappa is called low
_MOST_VIOLATED = 3  # rubrics named for each environment
_SHOWN_ABSTENTION = 0.01  # a rubric that abstains less often is not named
_VALUES: tuple[TagValue, ...] = ("positive", "violation", "not_applicable")


class TagShares(msgspec.Struct, frozen=True, kw_only=True):
    """Rates of some tags. Positive, violation and not applicable are shares of the decided ones and add up to 1."""

    tags: int  # decided or not
    coverage: float | None  # share decided; None without a tag
    positive: float | None  # None without a decided tag
    violation: float | None
    not_applicable: float | None


class JudgingFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The judging of a run in numbers."""

    verdicts: int  # training rollouts with a verdict
    silent: int  # verdicts that decide nothing
    models: dict[str, int]  # model -> verdicts it gave; silent ones have none
    overall: TagShares  # of all tags
    environments: dict[str, TagShares]  # of all tags of a world
    skills: dict[str, dict[str, TagShares]]  # world -> skill
    rubrics: dict[str, dict[str, TagShares]]  # world -> rubric
    scored: int  # training rollouts scored by written criteria
    missing_scores: float | None  # share of their scores that are missing, which is not 0; None where none were asked
    agreement: AgreementReport | None  # of the rollouts tagged twice; None when there are none
    worst: tuple[str, ...]  # rubrics of the lowest kappa, the lowest first
    seconds: dict[str, float | None]  # from submission to answer: mean (over updates), p50, p95 (over answers)
    price: float | None  # of the judge's tokens, in the currency of the endpoints' prices


def judging_facts(run: RunDirectory) -> JudgingFacts | None:
    """From the run's ledger and metrics. None where no rollout was judged. Raises `LedgerError` on a damaged ledger."""
    if not run.ledger.exists():
        return None
    tags, twice = TagCounts(), AgreementCounts()
    models: Counter[str] = Counter()
    seconds: list[float] = []
    verdicts = silent = scored = asked = missing = 0
    with Archive(run.ledger) as archive:
        for environment, verdict in archive.all_verdicts():
            verdicts += 1
            tags.add(environment, verdict)
            if verdict.abstained:
                silent += 1
            else:
                models[verdict.model] += 1
            seconds.append(verdict.seconds)
        for scores in archive.all_scores():
            scored += 1
            asked += len(scores.scores)
            missing += scores.scores.count(None)
            seconds.append(scores.seconds)
        for first, second in archive.judged_twice():
            twice.add(first, second)
    if verdicts == scored == 0:
        return None
    waited = [s for s in seconds if s > 0]  # an answer from the cache took none
    lines = ordered(read_json_lines(run.metrics))
    means = [mean for line in lines if (mean := number(line, "judge", "seconds_mean")) is not None]
    prices = [price for line in lines if (price := number(line, "judge", "price")) is not None]
    rates = tags.rates()
    agreement = twice.report()
    return JudgingFacts(
        verdicts=verdicts,
        silent=silent,
        models=dict(sorted(models.items())),
        overall=_shares(pooled(rate for rubrics in rates.values() for rate in rubrics.values())),
        environments={name: _shares(pooled(rubrics.values())) for name, rubrics in rates.items()},
        skills={name: _each(by_skill(rubrics)) for name, rubrics in rates.items()},
        rubrics={name: _each(rubrics) for name, rubrics in rates.items()},
        scored=scored,
        missing_scores=missing / asked if asked else None,
        agreement=agreement if agreement.verdicts else None,
        worst=tuple(rubric for rubric, _ in agreement.worst(WORST, min_pairs=_MIN_PAIRS)),
        seconds={
            "mean": statistics.fmean(means) if means else None,
            "p50": quantile(waited, 0.5),
            "p95": quantile(waited, 0.95),
        },
        price=math.fsum(prices) if prices else None,
    )


def judging_lines(facts: JudgingFacts) -> list[str]:
    """The same in words, one fact a line."""
    return list(_lines(facts))


def agreement_line(report: AgreementReport) -> str:
    """Cohen's kappa and what it is of.

    "kappa 0.40, 70% of 50 tags equal, 3 left out as abstained".
    """
    both = report.overall
    left_out = f", {both.left_out:,} left out as abstained" if both.left_out else ""
    kappa = "undefined" if both.kappa is None else f"{both.kappa:.2f}"
    return f"kappa {kappa}, {show(both.observed, '.0%')} of {both.pairs:,} tags equal{left_out}"


def quantile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that `share` of the values do not exceed; None for no values."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)] if values else None


def draw_rates(facts: JudgingFacts, path: Path) -> Path:
    """A heat map of tag rates, skill by world, for each of the three tags. Writes a PNG and returns `path`."""
    from matplotlib.figure import Figure  # heavy: half a second

    worlds = list(facts.skills)
    skills = list(dict.fromkeys(skill for by_world in facts.skills.values() for skill in by_world))
    width = 2.5 + 3 * (1.2 + 0.6 * len(worlds))
    figure = Figure(figsize=(width, 1.8 + 0.36 * len(skills)), layout="constrained")
    panels = figure.subplots(1, len(_VALUES), sharey=True)
    for axes, value in zip(panels, _VALUES, strict=True):
        rates = [[_rate(facts.skills[world].get(skill), value) for world in worlds] for skill in skills]
        _draw_panel(axes, value, rates)
        axes.set_xticks(range(len(worlds)), labels=worlds, rotation=30, ha="right")
        axes.set_yticks(range(len(skills)), labels=skills)
    figure.suptitle("share of the decided tags")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return path


def _draw_panel(axes: Any, value: TagValue, rates: Sequence[Sequence[float | None]]) -> None:
    colours = {"positive": "Greens", "violation": "Reds", "not_applicable": "Greys"}
    cells = [[math.nan if rate is None else rate for rate in row] for row in rates]
    axes.imshow(cells, cmap=colours[value], vmin=0.0, vmax=1.0, aspect="auto")
    for y, row in enumerate(rates):
        for x, rate in enumerate(row):
            dark = rate is not None and rate > 0.6
            text = "-" if rate is None else f"{rate:.0%}"
            axes.text(x, y, text, ha="center", va="center", fontsize=8, color="white" if dark else "black")
    axes.set_title(value.replace("_", " "), fontsize="medium")


def _rate(shares: TagShares | None, value: TagValue) -> float | None:
    rate: float | None = None if shares is None else getattr(shares, value)
    return rate


def _lines(f: JudgingFacts) -> Iterator[str]:
    if f.verdicts:
        yield from _verdicts(f)
    if f.scored:
        yield f"{f.scored:,} rollouts scored by written criteria, {show(f.missing_scores, '.1%')} of the scores missing"
    mean, p50, p95 = (show(f.seconds[name], ".3g") for name in ("mean", "p50", "p95"))
    price = "" if f.price is None else f", price {f.price:.4g}"
    yield f"an answer took {mean} s on average (p50 {p50} s, p95 {p95} s){price}"


def _verdicts(f: JudgingFacts) -> Iterator[str]:
    models = ", ".join(f"{model or 'unnamed'} {count:,}" for model, count in f.models.items())
    silent = f"; nothing at all in {f.silent:,} of them" if f.silent else ""
    by = models or "no model answered"
    yield f"{f.verdicts:,} verdicts ({by}), {_coverage(f.overall)} of the tags decided{silent}"
    if f.agreement is None:
        yield "no rollout was tagged twice: agreement is not known"
    else:
        yield f"{f.agreement.verdicts:,} rollouts tagged twice: {agreement_line(f.agreement)}"
        if f.worst:
            found = [(rubric, f.agreement.by_rubric[rubric].kappa) for rubric in f.worst]
            yield "lowest agreement: " + ", ".join(f"{rubric} {show(kappa, '.2f')}" for rubric, kappa in found)
    if missing := _most_abstained(f):
        yield "most abstained: " + ", ".join(f"{rubric} {share:.0%}" for rubric, share in missing)
    for world, shares in f.environments.items():
        rates = ", ".join(f"{show(_rate(shares, v), '.0%')} {v.replace('_', ' ')}" for v in _VALUES)
        violated = _top({r: s.violation or 0.0 for r, s in f.rubrics[world].items()}, _MOST_VIOLATED)
        worst = f"; most violated: {', '.join(f'{r} {rate:.0%}' for r, rate in violated)}" if violated else ""
        yield f"{world}: {rates}{worst}"


def _most_abstained(f: JudgingFacts) -> list[tuple[str, float]]:
    """Rubrics without a usable answer most often, over all worlds."""
    asked: Counter[str] = Counter()
    decided: dict[str, float] = {}
    for shares in f.rubrics.values():
        for rubric, share in shares.items():
            asked[rubric] += share.tags
            decided[rubric] = decided.get(rubric, 0.0) + share.tags * (share.coverage or 0.0)
    missing = {rubric: 1.0 - decided[rubric] / count for rubric, count in asked.items()}
    return [(rubric, share) for rubric, share in _top(missing, WORST) if share >= _SHOWN_ABSTENTION]


def _top(values: dict[str, float], count: int) -> list[tuple[str, float]]:
    """The largest entries above zero; ties in their order."""
    return sorted(((k, v) for k, v in values.items() if v > 0), key=lambda entry: -entry[1])[:count]


def _coverage(shares: TagShares) -> str:
    """Not rounded up to everything when something is missing."""
    if shares.coverage is None:
        return show(None)
    return f"{math.floor(1000 * shares.coverage) / 10:g}%"


def _each(rates: dict[str, TagRates]) -> dict[str, TagShares]:
    return {name: _shares(rate) for name, rate in rates.items()}


def _shares(rates: TagRates) -> TagShares:
    return TagShares(
        tags=rates.decided + rates.abstained,
        coverage=rates.coverage,
        positive=rates.rate("positive"),
        violation=rates.rate("violation"),
        not_applicable=rates.rate("not_applicable"),
    )
