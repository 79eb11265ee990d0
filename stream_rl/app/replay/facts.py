"""A replay in numbers, and in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from stream_rl.app.replay.comparison import Comparison
from stream_rl.app.replay.plan import ReplayPlan
from stream_rl.observe.judging import WORST, agreement_line
from stream_rl.observe.words import show
from stream_rl.rubrics.tag_rates import TagRates, pooled
from stream_rl.types import TagValue, Verdict

_MIN_PAIRS = 20  # of a rubric, before its kappa is called low
_NAMED = 5  # rounds named for a changed selection
_VALUES: tuple[TagValue, ...] = ("positive", "violation", "not_applicable")


class Spending:
    """What the verdicts of a replay cost, as they come in."""

    def __init__(self, prices: Mapping[str, tuple[float, float]]) -> None:
        """`prices`: per million prompt and completion tokens, by endpoint address."""
        self._prices = prices
        self.verdicts = 0
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.price = 0.0

    def add(self, verdict: Verdict) -> None:
        """One verdict."""
        price_in, price_out = self._prices.get(verdict.endpoint, (0.0, 0.0))
        self.verdicts += 1
        self.prompt_tokens += verdict.prompt_tokens
        self.completion_tokens += verdict.completion_tokens
        self.price += (verdict.prompt_tokens * price_in + verdict.completion_tokens * price_out) / 1e6


class ReplayFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay did and found."""

    run: str  # its name
    file: str  # the new verdicts
    plan: ReplayPlan  # who judged what
    total: int  # valid training rollouts of the run
    spending: Spending  # of this process
    from_cache: int  # verdicts that were in the cache
    seconds: float  # of this process
    comparison: Comparison  # new against old


def as_json(f: ReplayFacts) -> dict[str, Any]:
    """Plain data. What could not be compared is null."""
    found = f.comparison
    rates = {name: pooled(rubrics.values()) for name, rubrics in found.rates.items()}
    return {
        "run": f.run,
        "file": f.file,
        "endpoints": [endpoint.url for endpoint in f.plan.endpoints],
        "models": list(f.plan.models),
        "vocabulary": f.plan.source,
        "vocabulary_digest": f.plan.vocabulary.digest,
        "rollouts": f.total,
        "judged": f.spending.verdicts,
        "from_cache": f.from_cache,
        "seconds": f.seconds,
        "tokens": {"prompt": f.spending.prompt_tokens, "completion": f.spending.completion_tokens},
        "price": f.spending.price,
        "coverage": pooled(rates.values()).coverage,
        "environments": {
            name: {"coverage": rate.coverage, **{value: rate.rate(value) for value in _VALUES}}
            for name, rate in rates.items()
        },
        "agreement": msgspec.to_builtins(found.agreement),
        "selection": {
            "method": found.method,
            "overlap": found.overlap,
            "rounds": [{**msgspec.to_builtins(r), "overlap": r.overlap} for r in found.rounds],
        }
        if found.rounds
        else None,
        "hints": msgspec.to_builtins(found.hints),
    }


def in_words(f: ReplayFacts) -> str:
    """A title, and one indented line a fact."""
    title = f"replay of {f.run} by {', '.join(f.plan.models)}: {f.spending.verdicts:,} of {f.total:,} rollouts"
    return "\n".join([title, *(f"  {line}" for line in _lines(f))])


def _lines(f: ReplayFacts) -> Iterator[str]:
    found = f.comparison
    spent = f.spending
    price = f", price {spent.price:.4g}" if spent.price else ""
    yield (
        f"{f.seconds:.0f} s, {f.from_cache:,} verdicts from the cache, "
        f"{spent.prompt_tokens:,} prompt and {spent.completion_tokens:,} completion tokens{price}"
    )
    yield f"{len(f.plan.vocabulary.rubrics)} rubrics ({f.plan.source}), {_coverage(found)} of the tags decided"
    for name, rubrics in found.rates.items():
        rates: TagRates = pooled(rubrics.values())
        yield f"{name}: " + ", ".join(f"{show(rates.rate(v), '.0%')} {v.replace('_', ' ')}" for v in _VALUES)
    if found.agreement is None:
        yield "the run has no verdicts of its own on these rollouts: nothing to compare with"
        return
    shared = len(found.agreement.by_rubric)
    yield f"agreement with the run's verdicts on {shared} shared rubrics: {agreement_line(found.agreement)}"
    if worst := found.agreement.worst(WORST, min_pairs=_MIN_PAIRS):
        yield "lowest agreement: " + ", ".join(f"{rubric} {kappa:.2f}" for rubric, kappa in worst)
    yield from _selection(found)
    if found.hints:
        changed, groups = len(found.hints.changed), found.hints.groups
        yield f"hints: {changed:,} of {groups:,} trained groups ({changed / groups:.0%}) would get another one"


def _selection(found: Comparison) -> Iterator[str]:
    if not found.rounds:
        yield "selection: no round that left candidates out was judged again as a whole"
        return
    yield (
        f"selection ({found.method}): {show(found.overlap, '.0%')} of the trained groups would be chosen again, "
        f"over {len(found.rounds)} rounds"
    )
    most = sorted((r for r in found.rounds if r.removed), key=lambda r: r.overlap)[:_NAMED]
    if most:
        said = (f"round {r.round} {len(r.removed)} of {r.selected}" for r in most)
        yield f"most changed: {', '.join(said)}"


def _coverage(found: Comparison) -> str:
    coverage = pooled(rate for rubrics in found.rates.values() for rate in rubrics.values()).coverage
    return show(coverage, ".1%")
