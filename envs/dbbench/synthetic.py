"""Small tables and questions about them, made from a split and an index, so that the world runs without any data.

Answers and hashes are computed here in Python, not by the databases that are judged with them. Training and held-out
tables name different things: of each theme's names, the fifth with the smallest hash is held out.
"""

from __future__ import annotations

import hashlib
import random
from functools import cache

import msgspec

from envs.dbbench.fingerprint import row_hash, table_hash
from envs.dbbench.records import Record, Table
from stream_rl.types import Split


class Theme(msgspec.Struct, frozen=True, kw_only=True):
    """What tables are about: one column of names, one of words, two of numbers."""

    table: str  # name of the table
    key: str  # column of unique names
    names: tuple[str, ...]  # to choose from, at least 15
    word: str  # column of words
    words: tuple[str, ...]  # to choose from
    numbers: tuple[str, str]  # columns of whole numbers


_THEMES = (
    Theme(
        table="City Parks",
        key="Park",
        names=tuple(
            f"{first} {last}"
            for first in ("North", "Mill", "Cedar", "Harbour", "Station", "Old Town", "Hill", "River")
            for last in ("Park", "Garden", "Green", "Common")
        ),
        word="District",
        words=("Centre", "East Side", "Docks", "Uplands"),
        numbers=("Opened", "Trees"),
    ),
    Theme(
        table="match_results",
        key="Team",
        names=tuple(
            f"{town} {name}"
            for town in ("Aldby", "Brenton", "Carrow", "Dunmere", "Eastvale", "Farley", "Grimsay", "Holm")
            for name in ("Rovers", "United", "Town", "Athletic")
        ),
        word="Ground",
        words=("Lakeside", "The Oval", "Victoria Road", "Mühlenfeld"),
        numbers=("Goals", "Attendance"),
    ),
    Theme(
        table="Staff",
        key="Employee",
        names=tuple(
            f"{first} {last}"
            for first in ("Ada", "Björn", "Chidi", "Dolores", "Émile", "Farah", "Goran", "Hana")
            for last in ("Adeyemi", "Berg", "Castillo", "Novák")
        ),
        word="Department",
        words=("Sales", "Research", "Support", "Legal"),
        numbers=("Hired (year)", "Salary"),
    ),
)
SYNTHETIC = "synthetic"  # in place of a file: these tasks
_KINDS = ("lookup", "count", "total", "largest", "smallest", "above", "insert", "update", "delete")
_FEWEST_ROWS, _MOST_ROWS = 6, 14
_LARGEST_NUMBER = 2000


@cache
def names(split: Split, theme: Theme) -> tuple[str, ...]:
    """The names of a theme that belong to a split."""
    ordered = sorted(theme.names, key=lambda name: hashlib.sha256(name.encode()).digest())
    held_out = -(-len(ordered) // 5)
    return tuple(ordered[:held_out] if split == "held_out" else ordered[held_out:])


def generate(split: Split, index: int) -> Record:
    """Task number `index` of a split. Kinds are equally frequent over indices."""
    rng = random.Random(f"dbbench/{split}/{index}")
    theme = rng.choice(_THEMES)
    available = names(split, theme)
    chosen = rng.sample(available, min(len(available) - 1, rng.randint(_FEWEST_ROWS, _MOST_ROWS)))
    numbers = rng.sample(range(1, _LARGEST_NUMBER), 2 * len(chosen) + 2)
    rows = [
        (name, rng.choice(theme.words), str(numbers[2 * i]), str(numbers[2 * i + 1])) for i, name in enumerate(chosen)
    ]
    table = Table(name=theme.table, columns=(theme.key, theme.word, *theme.numbers), rows=tuple(rows))
    task = _Maker(f"{split}:{index}", theme, table, rng)
    kind = _KINDS[index % len(_KINDS)]
    if kind in ("insert", "update", "delete"):
        unused = next(name for name in available if name not in chosen)
        return task.change(kind, (unused, rng.choice(theme.words), str(numbers[-1]), str(numbers[-2])))
    return task.ask(kind)


class _Maker:
    """One table on the way to a task about it."""

    def __init__(self, name: str, theme: Theme, table: Table, rng: random.Random) -> None:
        self._id = f"synthetic-{name}"
        self._theme = theme
        self._table = table
        self._row = rng.choice(table.rows)  # the one that the task is about
        self._column = rng.randrange(2, 4)  # a column of numbers

    def ask(self, kind: str) -> Record:
        theme, column, row = self._theme, self._column, self._row
        key, number, table = theme.key, self._table.columns[column], theme.table
        values = [(int(r[column]), r[0]) for r in self._table.rows]
        bound = int(row[column])
        same = [int(r[column]) for r in self._table.rows if r[1] == row[1]]
        as_number = f"CAST(`{number}` AS SIGNED)"
        match kind:
            case "lookup":
                question = f"What is the {number} of the {key} '{row[0]}'?"
                return self._question(
                    question, [row[column]], f"SELECT `{number}` FROM `{table}` WHERE `{key}` = '{row[0]}'"
                )
            case "count":
                question = f"How many rows have the {theme.word} '{row[1]}'?"
                sql = f"SELECT COUNT(*) FROM `{table}` WHERE `{theme.word}` = '{row[1]}'"
                return self._question(question, [str(len(same))], sql)
            case "total":
                question = f"What is the sum of {number} over the rows with the {theme.word} '{row[1]}'?"
                sql = f"SELECT SUM({as_number}) FROM `{table}` WHERE `{theme.word}` = '{row[1]}'"
                return self._question(question, [str(sum(same))], sql)
            case "largest" | "smallest":
                best = max(values) if kind == "largest" else min(values)
                question = f"Which {key} has the {kind} {number}?"
                order = "DESC" if kind == "largest" else "ASC"
                return self._question(
                    question, [best[1]], f"SELECT `{key}` FROM `{table}` ORDER BY {as_number} {order} LIMIT 1"
                )
            case _:
                question = f"Which {key} have a {number} of at least {bound}?"
                found = [name for value, name in values if value >= bound]
                return self._question(question, found, f"SELECT `{key}` FROM `{table}` WHERE {as_number} >= {bound}")

    def change(self, kind: str, new: tuple[str, str, str, str]) -> Record:
        theme, column, row = self._theme, self._column, self._row
        key, number, table = theme.key, self._table.columns[column], theme.table
        rows = list(self._table.rows)
        match kind:
            case "insert":
                told = ", ".join(f"{name} '{value}'" for name, value in zip(self._table.columns, new, strict=True))
                question = f"Insert a row with {told}."
                sql = f"INSERT INTO `{table}` VALUES ({', '.join(repr(value) for value in new)})"
                rows.append(new)
            case "update":
                question = f"Set the {number} of the {key} '{row[0]}' to '{new[3]}'."
                sql = f"UPDATE `{table}` SET `{number}` = '{new[3]}' WHERE `{key}` = '{row[0]}'"
                changed = list(row)
                changed[column] = new[3]
                rows[rows.index(row)] = (changed[0], changed[1], changed[2], changed[3])
            case _:
                question = f"Delete every row with the {theme.word} '{row[1]}'."
                sql = f"DELETE FROM `{table}` WHERE `{theme.word}` = '{row[1]}'"
                rows = [r for r in rows if r[1] != row[1]]
        record = self._question(question, [], sql)
        expected = table_hash(map(row_hash, rows))
        kinds = {"insert": "INSERT", "update": "UPDATE", "delete": "DELETE"}
        return msgspec.structs.replace(record, kind=kinds[kind], expected=expected)

    def _question(self, question: str, answers: list[str], sql: str) -> Record:
        headers = ",".join(self._table.columns)
        return Record(
            id=self._id,
            kind="SELECT",
            question=question,
            about=f"The name of this table is {self._table.name}, and the headers of this table are {headers}.",
            tables=(self._table,),
            answers=tuple(answers),
            gold=sql,
        )
