"""One DBBench task as AgentBench's files hold it, and the reasons why some of them cannot be used."""

from __future__ import annotations

import hashlib
import re
from typing import Any, Literal, cast

import msgspec

Kind = Literal["SELECT", "INSERT", "UPDATE", "DELETE"]

_MODIFICATIONS = ("INSERT", "UPDATE", "DELETE")
_HASH = re.compile(r"[0-9a-f]{32}")
_LONGEST_NAME = 64  # characters of a MySQL identifier

# Rows whose gold statement does not lead to the recorded hash on any engine, by `digest`.
KNOWN_BAD = {
    "b3c865785487c353": "the recorded hash is not that of the table its own gold UPDATE leaves, on any engine",
}


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A table as an episode finds it. Every column is TEXT, whatever type the file names, as upstream makes them."""

    name: str  # not quoted
    columns: tuple[str, ...]  # names, in order
    rows: tuple[tuple[str, ...], ...]  # each as long as `columns`


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One task.

    >>> table = Table(name="t", columns=("a",), rows=(("1",),))
    >>> Record(id="dev:0", kind="SELECT", question="What is a?", tables=(table,), answers=("1",)).changes
    False
    """

    id: str  # "<file stem>:<line, from 0>"
    kind: Kind  # "SELECT": a question; else the change to make
    question: str  # what is asked
    about: str = ""  # upstream's sentence on tables and columns
    evidence: str = ""  # a further hint, in some files
    tables: tuple[Table, ...]  # one or more
    answers: tuple[str, ...] = ()  # of a question
    gold: str = ""  # SQL that solves it; reliable for changes only
    expected: str = ""  # hash of the tables after a change; empty: that of what `gold` leaves

    @property
    def changes(self) -> bool:
        """Whether the state of the tables decides, not the answer."""
        return self.kind != "SELECT"


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    """A row that cannot be a task."""

    id: str  # as `Record.id`
    reason: str  # for the log
    gold: bool  # it is a change, so it would count in a replay of gold statements


class _Column(msgspec.Struct, frozen=True):
    name: str


class _Info(msgspec.Struct, frozen=True):
    columns: list[_Column]
    rows: list[list[Any]]


class _Table(msgspec.Struct, frozen=True):
    table_name: str
    table_info: _Info


class _Row(msgspec.Struct, frozen=True):
    description: str
    type: list[str]
    table: _Table | list[_Table]
    label: list[Any] | str | None = None
    add_description: str = ""
    evidence: str = ""
    answer_md5: str | None = None
    sql: dict[str, Any] = msgspec.field(default_factory=dict)
    user_sqlite: bool = False


def read_record(row_id: str, row: object) -> Record | Skipped:
    """A decoded JSON row as a task. Raises `msgspec.ValidationError` for what is no DBBench row at all."""
    raw = msgspec.convert(row, _Row)
    name = raw.type[0].upper() if raw.type else ""
    kind = cast(Kind, name if name in _MODIFICATIONS else "SELECT")
    label = raw.label if isinstance(raw.label, list) else [] if raw.label is None else [raw.label]
    tables = raw.table if isinstance(raw.table, list) else [raw.table]
    gold = str(label[0]) if kind != "SELECT" and label else str(raw.sql.get("query") or "")
    found = _HASH.findall(raw.answer_md5 or "")
    record = Record(
        id=row_id,
        kind=kind,
        question=raw.description,
        about=raw.add_description,
        evidence=raw.evidence,
        tables=tuple(_table(table) for table in tables),
        answers=() if kind != "SELECT" else tuple(str(value) for value in label),
        gold=gold,
        expected="_".join(sorted(found)),
    )
    reason = _fault(record, raw)
    return record if reason is None else Skipped(id=row_id, reason=reason, gold=record.changes)


def digest(record: Record) -> str:
    """A key of the task's content: the same in every file that holds it."""
    return hashlib.sha256(f"{record.question}\n{record.gold}\n{record.expected}".encode()).hexdigest()[:16]


def table_digest(record: Record) -> bytes:
    """A key of the tables, shared by all tasks about the same ones."""
    return hashlib.sha256(msgspec.json.encode(record.tables)).digest()


def _table(raw: _Table) -> Table:
    return Table(
        name=raw.table_name,
        columns=tuple(column.name for column in raw.table_info.columns),
        rows=tuple(tuple(str(value) for value in row) for row in raw.table_info.rows),
    )


def _fault(record: Record, raw: _Row) -> str | None:
    if raw.user_sqlite:
        return "its tables are in an SQLite file of upstream's that is not part of the data"
    if not record.tables:
        return "it has no table"
    for table in record.tables:
        if reason := _table_fault(table):
            return reason
    if record.changes and not (record.expected or record.gold):
        return "it says neither what the tables should be afterwards nor how to get there"
    if not record.changes and not record.answers:
        return "it has no answer"
    return KNOWN_BAD.get(digest(record))


def _table_fault(table: Table) -> str | None:
    names = (table.name, *table.columns)
    if not table.columns:
        return f"table {table.name!r} has no columns"
    if any(not name.strip() for name in names):
        return f"table {table.name!r} has an empty name or an empty column name, which MySQL cannot make"
    if any(name != name.rstrip() or len(name) > _LONGEST_NAME or "\0" in name for name in names):
        return f"table {table.name!r} has a name that MySQL cannot take: too long, or ending in a space"
    if len({name.casefold() for name in table.columns}) < len(table.columns):
        return f"table {table.name!r} has two columns of one name"
    if any(len(row) != len(table.columns) for row in table.rows):
        return f"table {table.name!r} has rows that are not as long as its columns"
    return None
