"""What the source text of a table of the configuration says beside its fields: comments, and headings between them."""

from __future__ import annotations

import ast
import inspect
import io
import tokenize
from collections.abc import Mapping

import msgspec


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """One field as it is written down."""

    heading: str  # the comment line that opens its part of the table; empty before the first
    comment: str  # the comment on its own lines; empty for none


def declared(table: type[msgspec.Struct]) -> Mapping[str, Declared]:
    """Every field that `table` itself declares, in order."""
    source = inspect.getsource(table)
    comments, headings = _comments(source)
    (parsed,) = ast.parse(source).body
    assert isinstance(parsed, ast.ClassDef)
    out: dict[str, Declared] = {}
    for statement in parsed.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            end = statement.end_lineno or statement.lineno
            out[statement.target.id] = Declared(
                heading=next((text for line, text in reversed(headings.items()) if line < statement.lineno), ""),
                comment=" ".join(comments[line] for line in range(statement.lineno, end + 1) if line in comments),
            )
    return out


def _comments(source: str) -> tuple[dict[int, str], dict[int, str]]:
    """Comments by line: those after code, and those that have a line for themselves."""
    after_code: dict[int, str] = {}
    alone: dict[int, str] = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            where = after_code if token.line[: token.start[1]].strip() else alone
            where[token.start[0]] = token.string.lstrip("# ").rstrip()
    return after_code, alone
