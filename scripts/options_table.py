"""`docs/options.md`: every option of the configuration, from its declaration and the comment beside it.

`python -m scripts.options_table` writes the page. Type, bounds and default are read from the declared types, the
meaning from the comment, so the page cannot say anything else than the code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
from msgspec import inspect as types

from scripts.declarations import declared
from stream_rl.config import Config

PAGE = Path(__file__).resolve().parent.parent / "docs" / "options.md"
_INTRO = """\
# All options

A configuration is a TOML file that holds only what differs from these defaults; `--set section.key=value` goes on top.
An unknown key, a wrong type or an impossible combination is refused at start. What the options of `[algorithm]` do,
with formulas: [RISED](algorithms/rised.md), [ORSD](algorithms/orsd.md), [GRPO](algorithms/grpo.md),
[GiGPO](algorithms/gigpo.md), [on-policy self-distillation](algorithms/opsd.md).

This page is made from the declarations in [stream_rl/config](../stream_rl/config). Change an option there, then run
`python -m scripts.options_table`; a test fails while the page is not what the declarations say.
"""
_BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


class Undocumented(ValueError):
    """An option without a comment. The message says which."""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """One table of the configuration."""

    path: str  # "judge.endpoints"; empty for the top level
    repeated: bool  # it may stand any number of times
    kind: types.StructType  # what it holds
    note: str  # comment beside the field that holds it

    @property
    def title(self) -> str:
        """As TOML writes it."""
        if not self.path:
            return "Top level"
        return f"`[[{self.path}]]`" if self.repeated else f"`[{self.path}]`"

    @property
    def summary(self) -> str:
        """First line of its docstring, without the name that stands in the title, and the note."""
        line = (self.kind.cls.__doc__ or "").partition("\n")[0]
        lines = [line.partition("`: ")[2] or line, *([f"{self.note}."] if self.note else [])]
        return " ".join(text[:1].upper() + text[1:] for text in lines)


def page() -> str:
    """The whole page. Raises `Undocumented`."""
    return "\n".join([_INTRO, *(section(table) for table in tables(Config))])


def tables(config: type[msgspec.Struct]) -> Iterator[Table]:
    """The top level, then every table in it, depth first in order of declaration."""
    kind = types.type_info(config)
    assert isinstance(kind, types.StructType)
    yield from _tables(Table(path="", repeated=False, kind=kind, note=""))


def section(table: Table) -> str:
    """A table's heading and its options; the comment lines between them become headings. Raises `Undocumented`."""
    lines = [f"## {table.title}", "", table.summary, ""]
    notes, hints = declared(table.kind.cls), get_type_hints(table.kind.cls)
    heading = None
    for option in table.kind.fields:
        if table_in(option.type) is not None:
            continue
        note = notes[option.name]
        if not note.comment:
            where = f"{table.kind.cls.__module__}.{table.kind.cls.__name__}.{option.name}"
            raise Undocumented(f"{where} has no comment beside its declaration: say there what it means")
        if note.heading != heading:
            lines += ["", f"### {_capitalised(note.heading)}", ""] if note.heading else []
            lines += ["| key | value | default | meaning |", "|---|---|---|---|"]
            heading = note.heading
        cells = [
            f"`{option.name}`",
            value(option.type, hints[option.name]),
            default(option),
            note.comment.replace("|", "\\|"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(_without_double_blanks([*lines, ""]))


def value(kind: types.Type, hint: object = None) -> str:
    """What may be given, in words. `hint`: the same type as declared; choices are told in its order.

    >>> from typing import Literal
    >>> value(types.type_info(Literal["off", "low"]), Literal["off", "low"])
    '`"off"`, `"low"`'
    """
    match kind:
        case types.LiteralType(values=values):
            return ", ".join(f"`{json.dumps(choice)}`" for choice in get_args(hint) or values)
        case types.BoolType():
            return "`true`, `false`"
        case types.IntType(gt=gt, ge=ge, lt=lt, le=le):
            return _bounded("integer", gt=gt, ge=ge, lt=lt, le=le)
        case types.FloatType(gt=gt, ge=ge, lt=lt, le=le):
            return _bounded("number", gt=gt, ge=ge, lt=lt, le=le)
        case types.StrType():
            return "text"
        case types.DictType():
            return "table"
        case types.VarTupleType(item_type=item):
            return f"list, each: {value(item)}"
        case types.TupleType(item_types=items):
            return f"list of {len(items)}: {'; '.join(dict.fromkeys(value(item) for item in items))}"
    raise TypeError(f"no words for an option of type {kind}")


def default(option: types.Field) -> str:
    """The default as TOML writes it."""
    if option.required:
        return "required"
    given = option.default_factory() if option.default is msgspec.NODEFAULT else option.default
    return f"`{json.dumps(given)}`"


def table_in(kind: types.Type) -> types.StructType | None:
    """The table that an option is, or is a list of."""
    inner = kind.item_type if isinstance(kind, types.VarTupleType) else kind
    return inner if isinstance(inner, types.StructType) else None


def _tables(table: Table) -> Iterator[Table]:
    yield table
    notes = declared(table.kind.cls)
    for option in table.kind.fields:
        kind = table_in(option.type)
        if kind is not None:
            yield from _tables(
                Table(
                    path=f"{table.path}.{option.name}" if table.path else option.name,
                    repeated=kind is not option.type,
                    kind=kind,
                    note=notes[option.name].comment,
                )
            )


def _bounded(noun: str, **bounds: Any) -> str:
    given = {name: bound for name, bound in bounds.items() if bound is not None}
    if set(given) == {"ge", "le"}:
        return f"{noun}, {given['ge']} to {given['le']}"
    return ", ".join([noun, *(f"{_BOUNDS[name]} {bound}" for name, bound in given.items())])


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]


def _without_double_blanks(lines: list[str]) -> list[str]:
    return [line for line, before in zip(lines, [None, *lines], strict=False) if line or before]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")
