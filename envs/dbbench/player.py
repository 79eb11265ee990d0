"""A player for the generated tasks: it knows how their questions are worded. In AgentBench's own it only looks."""

from __future__ import annotations

import ast
import json
import random
import re
from collections.abc import Callable

_TABLE = re.compile(r"The name of this table is (.*), and the headers of this table are .*\.")
_ANY = "'(.*)'"
_QUOTED = r"'([^']*)'"


def _select(column: str, table: str, rest: str) -> str:
    return f"SELECT `{column}` FROM `{table}` {rest}"


# A question's wording, and SQL from the table and what the question says.
_QUESTIONS: tuple[tuple[str, Callable[..., str]], ...] = (
    (f"What is the (.*) of the (.*) {_ANY}\\?", lambda t, n, key, v: _select(n, t, f"WHERE `{key}` = '{v}'")),
    (f"How many rows have the (.*) {_ANY}\\?", lambda t, w, v: f"SELECT COUNT(*) FROM `{t}` WHERE `{w}` = '{v}'"),
    (
        f"What is the sum of (.*) over the rows with the (.*) {_ANY}\\?",
        lambda t, n, w, v: f"SELECT SUM(`{n}`) FROM `{t}` WHERE `{w}` = '{v}'",
    ),
    ("Which (.*) has the largest (.*)\\?", lambda t, key, n: _select(key, t, f"ORDER BY `{n}` + 0 DESC LIMIT 1")),
    ("Which (.*) has the smallest (.*)\\?", lambda t, key, n: _select(key, t, f"ORDER BY `{n}` + 0 LIMIT 1")),
    ("Which (.*) have a (.*) of at least (\\d+)\\?", lambda t, key, n, v: _select(key, t, f"WHERE `{n}` >= {v}")),
    (
        "Insert a row with (.*)\\.",
        lambda t, told: f"INSERT INTO `{t}` VALUES ({', '.join(f'{v!r}' for v in re.findall(_QUOTED, told))})",
    ),
    (
        f"Set the (.*) of the (.*) {_ANY} to {_ANY}\\.",
        lambda t, n, key, v, new: f"UPDATE `{t}` SET `{n}` = '{new}' WHERE `{key}` = '{v}'",
    ),
    (f"Delete every row with the (.*) {_ANY}\\.", lambda t, w, v: f"DELETE FROM `{t}` WHERE `{w}` = '{v}'"),
)


class Player:
    """Plays one episode from what it is shown, in either form: `act`, tell the world, `observe` its answer."""

    def __init__(self, first_observation: str, rng: random.Random) -> None:
        self._tool = "execute_sql" in first_observation
        self._sql = _statement(first_observation)
        self._answer: list[str] | None = None

    def observe(self, action: str, answer: str) -> None:
        """Take in the world's answer: the first column of its rows is the answer."""
        try:
            self._answer = [str(row[0]) for row in ast.literal_eval(answer)]
        except (ValueError, SyntaxError, IndexError, TypeError):
            self._answer = []

    def act(self) -> str:
        """The next action."""
        if self._answer is None:
            if self._tool:
                return json.dumps({"name": "execute_sql", "arguments": {"query": self._sql}})
            return f"Action: Operation\n```sql\n{self._sql}\n```"
        if self._tool:
            return json.dumps({"name": "commit_final_answer", "arguments": {"answers": self._answer}})
        return f"Action: Answer\nFinal Answer: {json.dumps(self._answer, ensure_ascii=False)}"


def _statement(first_observation: str) -> str:
    table = _TABLE.search(first_observation)
    question = first_observation.rpartition("Question: ")[2].strip()
    if table is None:
        return "SHOW TABLES"
    name = table.group(1)
    for wording, sql in _QUESTIONS:
        if found := re.fullmatch(wording, question):
            return sql(name, *found.groups())
    return f"SELECT * FROM `{name}` LIMIT 5"
