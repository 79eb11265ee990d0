"""What a recomputation found, as plain data and in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from stream_rl.app.replay.pairs import PairFacts
from stream_rl.app.replay.recompute import OneRound, RecomputeFacts
from stream_rl.app.replay.settings import Reads
from stream_rl.app.replay.side_by_side import RoundChange, SideBySide
from stream_rl.config.algorithm import CORRECTS_ADVANTAGE
from stream_rl.observe.words import show

_NAMED = 5  # rounds, records or keys named of each kind
_ROWS = 24  # updates in the table
_LABEL = 12  # width of a line's first word
# What a change decides -> columns of the table of updates; "": of every one.
_CELLS: dict[Reads | Literal[""], tuple[str, ...]] = {
    "": ("update",),
    "selection": ("chosen again", "reward was", "would be", "success was", "would be"),
    "hints": ("other hints",),
    "advantages": ("pearson", "kendall", "mean difference", "sign turned"),
}
_COLUMNS = ("groups", "reward", "success", "no spread", "tokens", "rubrics", "skills")


def as_json(f: RecomputeFacts) -> dict[str, Any]:
    """Plain data. What is not defined is null; `change` and `total` are null where nothing was changed."""
    return {
        "run": f.run,
        "set": [msgspec.to_builtins(change) for change in f.settings.changes],
        "agrees": f.agrees,
        "rollouts": f.rollouts,
        "faults": msgspec.to_builtins(f.faults),
        "advantages": msgspec.to_builtins(f.advantages),
        "metrics": msgspec.to_builtins(f.metrics),
        "resumed": list(f.resumed),
        "not_in_ledger": list(_unknown(f)),
        "total": msgspec.to_builtins(f.total),
        "environments": msgspec.to_builtins(f.worlds),
        "rounds": [{**msgspec.to_builtins(r), "agrees": r.agrees} for r in f.rounds],
    }


def in_words(f: RecomputeFacts) -> str:
    """A title, what was checked, and where something was changed both sides and a table of updates."""
    trained = sum(r.selected for r in f.rounds)
    title = (
        f"replay of {f.run} from its ledger: {len(f.rounds):,} updates, "
        f"{sum(r.candidates for r in f.rounds):,} candidate groups, {trained:,} selected"
    )
    lines = [title, "as recorded, by the formulas of this version", *_indented(_check(f))]
    if f.total is not None:
        said = ", ".join(f"{c.key} = {c.now} (was {c.was})" for c in f.settings.changes)
        lines += [f"with {said}", *_indented(_changes(f, f.total)), ""]
        if f.settings.changes_any("selection"):
            lines += [*_sides(f, f.total), ""]
        lines += [*_table(f), ""]
    return "\n".join([*lines, "not in the ledger, so not recomputed:", *(f"  {what}" for what in _unknown(f))])


def _indented(facts: Iterator[tuple[str, str]]) -> Iterator[str]:
    for label, text in facts:
        yield f"  {label:<{_LABEL}}{text}"


def _check(f: RecomputeFacts) -> Iterator[tuple[str, str]]:
    rounds = f.rounds
    chosen = [r for r in rounds if r.added or r.removed]
    yield "selection", f"{len(rounds) - len(chosen):,} of {len(rounds):,} rounds come out again"
    for r in chosen[:_NAMED]:
        yield "", f"update {r.update}: {_exchange(r.removed, r.added)}{_why(r)}"
    yield from _rest(len(chosen))
    hints = [r for r in rounds if r.hints]
    yield "hints", f"{len(rounds) - len(hints):,} of {len(rounds):,} rounds come out again"
    for r in hints[:_NAMED]:
        yield "", f"update {r.update}: another one for {_names(r.hints)}{_why(r)}"
    yield from _rest(len(hints))
    yield "rewards", f"of {f.rollouts:,} trained rollouts: {_faulty(len(f.faults))}"
    for fault in f.faults[:_NAMED]:
        yield "", f"update {fault.update}, {fault.trajectory}: {fault.problem}"
    yield from _rest(len(f.faults))
    a, algorithm = f.advantages, f.settings.run.algorithm
    yield (
        "advantages",
        f"{algorithm.advantage}: mean |A| {show(a.size, '.3f')}, 0 at {show(a.none_share, '.0%')} of {a.turns:,} turns",
    )
    yield from _metrics(f)


def _metrics(f: RecomputeFacts) -> Iterator[tuple[str, str]]:
    m = f.metrics
    yield (
        "metrics",
        f"{m.agree:,} of {m.lines:,} lines agree exactly in the {len(m.keys)} keys that a ledger determines",
    )
    by_update: dict[int, list[str]] = {}
    for d in m.differences:
        by_update.setdefault(d.update, []).append(f"{d.key} {_value(d.recorded)}, recomputed {_value(d.recomputed)}")
    notes = {r.update: r for r in f.rounds}
    for update, said in list(by_update.items())[:_NAMED]:
        more = f", and {len(said) - _NAMED} more" if len(said) > _NAMED else ""
        yield "", f"update {update}: {'; '.join(said[:_NAMED])}{more}{_why(notes[update])}"
    yield from _rest(len(by_update))
    if m.missing:
        yield "", f"no line for updates {_names([str(k) for k in m.missing])}"
    if m.absent:
        yield "", f"an earlier version's lines lack {', '.join(m.absent)}"
    if f.resumed:
        yield (
            "",
            f"resumed at version {_names([str(v) for v in f.resumed])}: what memory held until then is not compared",
        )


def _changes(f: RecomputeFacts, total: SideBySide) -> Iterator[tuple[str, str]]:
    rows = _rows(f)
    if f.settings.changes_any("selection"):
        selected = sum(r.selected for r, _ in rows)
        kept = selected - sum(len(c.removed) for _, c in rows)
        share = kept / selected if selected else None
        others = sum(len(c.added) for _, c in rows)
        same = sum(not (c.added or c.removed) for _, c in rows)
        yield (
            "selection",
            f"{show(share, '.0%')} of the {selected:,} selected groups are chosen again, {others:,} others beside "
            f"them; {same:,} of {len(rows):,} rounds stay as they were",
        )
        if all(c.selected == r.candidates for r, c in rows):
            yield "", "every candidate is chosen: a lower groups.per_update would leave some out"
        for r, c in sorted((row for row in rows if row[1].removed), key=_sameness)[:_NAMED]:
            yield "", f"update {r.update}: {_exchange(c.removed, c.added)}"
    if f.settings.changes_any("hints"):
        told, groups = sum(len(c.hints) for _, c in rows), total.was.groups
        share = told / groups if groups else None
        yield "hints", f"{told:,} of {groups:,} trained groups ({show(share, '.0%')}) would get another one"
    if total.pairs is not None:
        yield "advantages", _pairs(total.pairs)
        yield "", f"mean |A| {show(total.pairs.size_was, '.3f')} then, {show(total.pairs.size_now, '.3f')} now"
        yield "", f"{total.pairs.silenced:,} turns lose theirs, {total.pairs.woken:,} get one"


def _rows(f: RecomputeFacts) -> list[tuple[OneRound, RoundChange]]:
    return [(r, r.change) for r in f.rounds if r.change is not None]


def _pairs(p: PairFacts) -> str:
    flipped = p.flipped / p.turns if p.turns else None
    return (
        f"over {p.turns:,} turns that were trained: pearson {show(p.pearson, '.3f')}, kendall {show(p.kendall, '.3f')}"
        f" within groups, mean difference {show(p.difference, '.3f')}, sign turned at {show(flipped, '.1%')}"
    )


def _sides(f: RecomputeFacts, total: SideBySide) -> Iterator[str]:
    """What was trained beside what would have been, by world."""
    worlds = list(f.worlds.items())
    rows = [*worlds, ("all", total)] if len(worlds) > 1 else worlds
    width = max(len(name) for name, _ in rows) + len(" would be")
    yield f"  {'trained':<{width}}" + "".join(f"{name:>10}" for name in _COLUMNS)
    for name, sides in rows:
        for side, facts in ((f"{name} was", sides.was), (f"{name} would be", sides.now)):
            cells = (
                f"{facts.groups:,}",
                show(facts.reward_mean, ".3f"),
                show(facts.success, ".3f"),
                show(facts.zero_variance, ".0%"),
                show(facts.response_tokens, ".1f"),
                show(facts.rubrics, ".1f"),
                show(facts.skills, ".1f"),
            )
            yield f"  {side:<{width}}" + "".join(f"{cell:>10}" for cell in cells)


def _table(f: RecomputeFacts) -> Iterator[str]:
    """One line an update, of what the changes concern; of many updates those that change most."""
    rows = _rows(f)
    if len(rows) > _ROWS:
        yield f"  the {_ROWS} updates that change most (the JSON file has all)"
        rows = sorted(sorted(rows, key=_sameness)[:_ROWS], key=lambda row: row[0].update)
    concerned = [what for what in _CELLS if what == "" or f.settings.changes_any(what)]
    heads = [head for what in concerned for head in _CELLS[what]]
    yield "  " + "  ".join(heads)
    for r, c in rows:
        cells = [cell for what in concerned for cell in _cells(what, r, c)]
        yield "  " + "  ".join(f"{cell:>{len(head)}}" for cell, head in zip(cells, heads, strict=True))


def _cells(what: Reads | Literal[""], r: OneRound, c: RoundChange) -> tuple[str, ...]:
    was, now, p = c.sides.was, c.sides.now, c.sides.pairs
    match what:
        case "":
            return (str(r.update),)
        case "selection":
            return (
                show(c.overlap, ".0%"),
                show(was.reward_mean, ".3f"),
                show(now.reward_mean, ".3f"),
                show(was.success, ".3f"),
                show(now.success, ".3f"),
            )
        case "hints":
            return (str(len(c.hints)),)
        case "advantages":
            if p is None:
                return ("",) * len(_CELLS["advantages"])
            sign = p.flipped / p.turns if p.turns else None
            return (
                show(p.pearson, ".3f"),
                show(p.kendall, ".3f"),
                show(p.difference, ".3f"),
                show(sign, ".1%"),
            )


def _sameness(row: tuple[OneRound, RoundChange]) -> tuple[float, float]:
    _, change = row
    pearson = change.sides.pairs.pearson if change.sides.pairs is not None else None
    return change.overlap, 1.0 if pearson is None else pearson


def _unknown(f: RecomputeFacts) -> Iterator[str]:
    """What needs the policy."""
    yield "log-likelihoods under the policy, and with them losses and off-policy weights"
    kinds = dict.fromkeys(c.algorithm.distillation for c in (f.settings.run, f.settings.changed))
    for kind in kinds:
        if kind in CORRECTS_ADVANTAGE:
            yield f"what the teacher of '{kind}' makes of each token's advantage; these here are before it"
        elif kind == "opsd":
            yield "the teacher's term of 'opsd', which is all it trains on: it reads no advantage"
        elif kind != "none":
            yield f"the teacher's term of '{kind}'"


def _exchange(removed: Sequence[str], added: Sequence[str]) -> str:
    parts = [f"{_names(removed)} left out"] if removed else []
    return " and ".join([*parts, *([f"{_names(added)} chosen instead"] if added else [])])


def _why(r: OneRound) -> str:
    return f" ({'; '.join(r.notes)})" if r.notes else ""


def _rest(count: int) -> Iterator[tuple[str, str]]:
    if count > _NAMED:
        yield "", f"and {count - _NAMED:,} more in the JSON file"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _faulty(count: int) -> str:
    return f"{count:,} do not fit their own record" if count else "each is the sum of its steps"


def _value(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else show(value)
