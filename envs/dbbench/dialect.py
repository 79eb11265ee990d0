"""MySQL's language in SQLite's: sqlglot translates the grammar, this module the meaning where the two differ.

MySQL compares text with a number as numbers, and text with text without case and accents; SQLite does neither by
itself. Every column of DBBench is TEXT, so such comparisons are the rule.
"""

from __future__ import annotations

import logging
import re
from functools import lru_cache

import sqlglot
from sqlglot import exp
from sqlglot.dialects.sqlite import SQLite
from sqlglot.errors import ErrorLevel, ParseError

from envs.dbbench.backend import StatementFailed
from envs.dbbench.collation import NAME
from envs.dbbench.statements import Statement

logging.getLogger("sqlglot").setLevel(logging.ERROR)  # it warns of an agent's syntax, which the agent is told anyway

_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ)
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg)
_NUMERIC_FUNCTIONS = (exp.Count, exp.Sum, exp.Avg, exp.Round, exp.Abs, exp.Length, exp.Floor, exp.Ceil, exp.StrPosition)
_AS_NUMBER, _REMAINDER = "as_number", "remainder"
_TABLE_NAME = r"(?P<name>`(?:[^`]|``)+`|[^\s`;]+)"
_RENAME = re.compile(rf"rename\s+table\s+{_TABLE_NAME}\s+to\s+(?P<new>`(?:[^`]|``)+`|\S+)\s*\Z", re.IGNORECASE)
_REPLACE = re.compile(r"\breplace\b", re.IGNORECASE)


class _Target(SQLite):
    """SQLite with names in backticks: an unknown name in double quotes is taken for text, one in backticks is not."""

    class Tokenizer(SQLite.Tokenizer):
        IDENTIFIERS = ["`"]  # noqa: RUF012  (the base class declares it so)


@lru_cache(maxsize=4096)
def to_sqlite(statement: Statement) -> str:
    """The statement for SQLite. Raises `StatementFailed` for what is not MySQL, or has no counterpart."""
    if statement.verb == "explain":
        raise StatementFailed("EXPLAIN is not available on this server")
    try:
        tree = sqlglot.parse_one(_respelt(statement), read="mysql", error_level=ErrorLevel.IMMEDIATE)
        if isinstance(tree, exp.Command):
            raise StatementFailed(f"{statement.verb.upper()}: this form is not available on this server")
        return tree.transform(_rewrite, copy=False).sql(dialect=_Target, unsupported_level=ErrorLevel.IGNORE)
    except StatementFailed:
        raise
    except ParseError as error:
        raise StatementFailed(f"You have an error in your SQL syntax: {_where(error)}") from None
    except Exception as error:  # a parser of another project, on text that may be anything
        raise StatementFailed(f"You have an error in your SQL syntax: {type(error).__name__}") from None


def _respelt(statement: Statement) -> str:
    """Statements that sqlglot does not know, as others that mean the same here: no table has a unique key at first."""
    if statement.verb == "replace":
        return _REPLACE.sub("INSERT", statement.text, count=1)
    if statement.verb == "rename" and (found := _RENAME.match(statement.text)):
        return f"ALTER TABLE {found['name']} RENAME TO {found['new']}"
    return statement.text


def _where(error: ParseError) -> str:
    told = error.errors[0] if error.errors else {}
    near = f"{told.get('highlight') or ''}{told.get('end_context') or ''}"[:80]
    return f"{told.get('description') or 'it cannot be read'} near '{near}'"


def _rewrite(node: exp.Expr) -> exp.Expr:
    match node:
        case exp.In() if node.expressions:
            _compare_many(node, "expressions", node.expressions)
        case exp.Between():
            _compare_many(node, None, [node.args["low"], node.args["high"]])
        case exp.Cast():
            return _cast(node)
        case exp.Length() if node.args.get("binary"):
            return exp.Length(this=exp.cast(node.this, exp.DataType.Type.VARBINARY))
        case exp.ColumnDef():
            _collate_column(node)
        case exp.Left() | exp.Right():  # words of SQLite's own grammar
            return exp.Anonymous(this=f"{node.key}_part", expressions=[node.this, node.expression])
        case exp.Trunc():
            decimals = node.args.get("decimals") or exp.Literal.number(0)
            return exp.Anonymous(this="truncate", expressions=[node.this, decimals])
        case exp.Mod():  # SQLite's own takes whole numbers only
            return exp.Anonymous(this=_REMAINDER, expressions=[node.this, node.expression])
        case exp.TruncateTable() if len(node.expressions) == 1:
            return exp.Delete(this=node.expressions[0])
        case exp.Values() if isinstance(node.parent, exp.Insert):
            for row in node.expressions:
                row.set("expressions", [_stored(value) for value in row.expressions])
        case exp.Update() | exp.Delete():
            _limit_rows(node)
        case _ if isinstance(node, (*_ARITHMETIC, exp.Sum, exp.Avg)):
            _compute(node)
        case _ if isinstance(node, _COMPARISONS):
            _compare(node)
    return node


def _compare(node: exp.Binary) -> None:
    left, right = node.left, node.right
    if isinstance(node.parent, exp.Update | exp.OnConflict) and node.arg_key == "expressions":
        node.set("expression", _stored(right))  # no comparison, but an assignment
        return
    if isinstance(left, exp.Tuple) or isinstance(right, exp.Tuple):
        return
    if _numeric(left) and _numeric(right):
        return
    if _numeric(left) or _numeric(right):
        node.set("expression" if _numeric(left) else "this", _number(right if _numeric(left) else left))
    elif not any(isinstance(side, exp.Column | exp.Subquery) or _binary(side) for side in (left, right)):
        node.set("this", _collated(left))


def _compare_many(node: exp.In | exp.Between, key: str | None, others: list[exp.Expr]) -> None:
    left = node.this
    if isinstance(left, exp.Tuple):
        return
    if all(map(_numeric, others)) and not _numeric(left):
        node.set("this", _number(left))
    elif _numeric(left):
        for other in others:
            if not _numeric(other):
                other.replace(_number(other.copy()))
    elif not isinstance(left, exp.Column | exp.Subquery):
        node.set("this", _collated(left))


def _numeric(node: exp.Expr | None) -> bool:
    """Whether MySQL would compare as numbers because of this operand."""
    match node:
        case exp.Literal():
            return not node.is_string
        case exp.Paren():
            return _numeric(node.this)
        case exp.Subquery() if isinstance(node.this, exp.Select) and node.this.expressions:
            return _numeric(node.this.expressions[0].unalias())
        case exp.Cast():
            return node.to.is_type(*exp.DataType.NUMERIC_TYPES)
        case exp.Boolean():
            return True
        case exp.Anonymous():
            return node.name in (_AS_NUMBER, _REMAINDER)
        case _:
            return isinstance(node, _ARITHMETIC + _NUMERIC_FUNCTIONS)


def _binary(node: exp.Expr) -> bool:
    return isinstance(node, exp.Cast) and node.to.is_type(exp.DataType.Type.BINARY)


def _number(node: exp.Expr) -> exp.Expr:
    """The number that a text begins with."""
    return exp.Anonymous(this=_AS_NUMBER, expressions=[node])


def _compute(node: exp.Expr) -> None:
    """MySQL computes with text as floating point numbers, SQLite with whole ones where it can."""
    for key in ("this", "expression"):
        operand = node.args.get(key)
        if isinstance(operand, exp.Column) or (isinstance(operand, exp.Literal) and operand.is_string):
            node.set(key, _number(operand))


def _stored(value: exp.Expr) -> exp.Expr:
    """A number as the text that MySQL puts in a TEXT column: 9.50 stays 9.50, and 12 / 2 is 6."""
    if isinstance(value, exp.Literal) and not value.is_string and "e" not in value.name.lower():
        return exp.Literal.string(value.name)
    return exp.Anonymous(this="stored_number", expressions=[value]) if _numeric(value) else value


def _collated(node: exp.Expr) -> exp.Expr:
    return exp.Collate(this=exp.Paren(this=node), expression=exp.Var(this=NAME))


def _cast(node: exp.Cast) -> exp.Expr:
    kind = node.to
    if _binary(node):
        return exp.Collate(this=exp.Paren(this=node.this), expression=exp.Var(this="BINARY"))
    if kind.is_type(exp.DataType.Type.DECIMAL):
        digits = [int(parameter.name) for parameter in kind.expressions]
        real = exp.Cast(this=node.this, to=exp.DataType.build("double"))
        return exp.Round(this=real, decimals=exp.Literal.number(digits[1] if len(digits) > 1 else 0))
    return node


def _collate_column(node: exp.ColumnDef) -> None:
    if node.kind is not None and node.kind.is_type(*exp.DataType.TEXT_TYPES):
        collation = exp.CollateColumnConstraint(this=exp.Var(this=NAME))
        node.append("constraints", exp.ColumnConstraint(kind=collation))


def _limit_rows(node: exp.Update | exp.Delete) -> None:
    """UPDATE and DELETE with ORDER BY or LIMIT, which SQLite is not built with: the same on chosen row numbers."""
    limit, order, table = node.args.get("limit"), node.args.get("order"), node.this
    if not (limit or order):
        return
    chosen = exp.select("rowid").from_(table.copy())
    for key, value in (("where", node.args.get("where")), ("order", order), ("limit", limit)):
        if value is not None:
            chosen.set(key, value.copy())
            node.set(key, None)
    row = exp.column("rowid")
    node.set("where", exp.Where(this=exp.In(this=row, query=exp.Subquery(this=chosen))))
