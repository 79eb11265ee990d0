"""The comparison as a table for a terminal, and as Markdown. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from stream_rl.observe.compare import COLUMNS, Cell, Comparison, Group, plain
from stream_rl.observe.progress import Estimate

_NAMES = {name: name.replace("_", " ") for name in COLUMNS}
_SHARES = frozenset({"start", "final", "gain", "best"})
_WHOLE = frozenset({"train_s", "device_s", "seconds_to_0.5", "seconds_to_0.6"})
_SETTINGS = 12  # differing keys that are shown
_SETTING_CELLS = 40


def render_text(found: Comparison) -> str:
    """Aligned columns, one for each group; below them the changes and what a column means."""
    rows = list(_rows(found))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*lines, "", *_notes(found)])


def render_markdown(found: Comparison, *, picture: str) -> str:
    """The same as a page with the `picture` (relative path)."""
    header, *rows = ([_escaped(cell) for cell in row] for row in _rows(found))
    table = ["| " + " | ".join(row) + " |" for row in (header, ["---"] * len(header), *rows)]
    meaning = [f"- {_NAMES[name]}: {told}" for name, told in COLUMNS.items()]
    notes = [f"- {note}" for note in _notes(found)]
    return "\n".join(["# Comparison", "", *table, "", *notes, "", f"![curves]({picture})", "", *meaning, ""])


def _rows(found: Comparison) -> Iterator[list[str]]:
    yield ["", *(group.label for group in found.groups)]
    for key in list(found.groups[0].setting)[:_SETTINGS] if found.groups else ():
        yield [key, *(_shortened(plain(group.setting.get(key))) for group in found.groups)]
    yield ["runs (seeds)", *(f"{len(g.runs)} ({' '.join(map(str, g.seeds))})" for g in found.groups)]
    yield ["updates", *(_updates(g) for g in found.groups)]
    for name in COLUMNS:
        cells = [group.cells.get(name) for group in found.groups]
        if any(cells):
            yield [_NAMES[name], *(_cell(name, cell, len(g.runs)) for cell, g in zip(cells, found.groups, strict=True))]
    roles = dict.fromkeys(role for group in found.groups for role in group.device_s)
    for role in roles:
        yield [
            f"{role}, device s",
            *(f"{group.device_s[role]:.0f}" if role in group.device_s else "-" for group in found.groups),
        ]


def _shortened(text: str) -> str:
    return text if len(text) <= _SETTING_CELLS else f"{text[: _SETTING_CELLS - 3]}..."


def _updates(group: Group) -> str:
    trained = sorted(set(group.updates))
    text = str(trained[0]) if len(trained) == 1 else f"{trained[0]} to {trained[-1]}"
    return text if group.complete else f"{text} (not all complete)"


def _cell(name: str, cell: Cell | None, runs: int) -> str:
    if cell is None:
        return "-"
    measured = sum(value is not None for value in cell.values)
    some = "" if measured == runs else f" ({measured} of {runs} runs)"
    spread = f" [{_number(name, cell.interval.low)}, {_number(name, cell.interval.high)}]" if cell.interval else ""
    return _number(name, cell.mean) + spread + some


def _number(name: str, value: float) -> str:
    if name == "gain":
        return f"{value:+.3f}"
    if name in _SHARES:
        return f"{value:.3f}"
    if name == "rollout_wait":
        return f"{value:.1%}"
    if name.startswith("tokens_"):
        return f"{value:,.0f}"
    return f"{value:.0f}" if name in _WHOLE else f"{value:.4g}"


def _notes(found: Comparison) -> Iterator[str]:
    yield "[low, high]: 95 % interval of the mean over seeds (Student's t); of a single run's end: over its tasks"
    if len(found.groups) > 1 and (hidden := len(found.groups[0].setting) - _SETTINGS) > 0:
        yield f"{hidden} more keys of the configuration differ; comparison.json has all of them"
    for change in found.changes:
        how = "paired by seed" if change.paired else "Welch"
        said = "needs two runs on either side" if change.change is None else f"{_signed(change.change)}, {how}"
        yield f"final success of {change.group} against {change.against}: {said}"


def _signed(e: Estimate) -> str:
    clear = "" if e.low > 0 or e.high < 0 else "; the interval holds 0"
    return f"{e.value:+.3f} [{e.low:+.3f}, {e.high:+.3f}]{clear}"


def _escaped(text: str) -> str:
    return text.replace("|", r"\|")
